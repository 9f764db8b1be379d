"""Score one LongBench prediction: what of it counts, and the best over the references."""

from __future__ import annotations

from tokenweight.evaluation.longbench import metrics
from tokenweight.evaluation.longbench.tasks import FirstLine, longbench_task


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
    filtered = output
    if spec.takes_first_line(first_line):
        filtered = output.lstrip("\n").split("\n")[0]
    if spec.metric == "classification":
        scores = [metrics.classification(filtered, reference, all_classes or []) for reference in references]
    else:
        metric = getattr(metrics, spec.metric)
        scores = [metric(filtered, reference) for reference in references]
    return filtered, max(scores, default=0.0)
