"""Score one LongBench prediction: what of it counts, and the best over the references."""

from __future__ import annotations

from tokenweight.evaluation.longbench import metrics
from tokenweight.evaluation.longbench.tasks import FirstLine, LongBenchTask, longbench_task


def score_longbench(
    task: str, output: str, references: list[str], all_classes: list[str] | None, first_line: FirstLine
) -> tuple[str, float]:
    """Filtered prediction and its score in 0..1, the maximum over `references`.

    Args:
        task: name of one of the 16 English tasks.
        output: what the model generated, prompt excluded.
        references: all accepted answers.
        all_classes: class names (trec only).
        first_line: which tasks keep only the first line (`lceg` as the paper, `thudm` as LongBench's own code).
    """
    spec = longbench_task(task)
    filtered = first_line_of(output) if spec.takes_first_line(first_line) else output
    return filtered, best_score(spec, filtered, references, all_classes)


def first_line_of(output: str) -> str:
    """The first line, leading line breaks left out."""
    return output.lstrip("\n").split("\n")[0]


def best_score(spec: LongBenchTask, filtered: str, references: list[str], all_classes: list[str] | None) -> float:
    """The task's metric in 0..1, the maximum over `references`, of a prediction that is used as it is."""
    if spec.metric == "classification":
        scores = [metrics.classification(filtered, reference, all_classes or []) for reference in references]
    else:
        metric = getattr(metrics, spec.metric)
        scores = [metric(filtered, reference) for reference in references]
    return max(scores, default=0.0)
