"""The synthetic novel as a judge: every weighting of Tables 3 and 4 on tokens whose kind is known (not in the paper).

Section 5 explains its results by what the weightings do to long-range, learnable, easy and hard tokens, which no public
corpus labels. Here the labels are planted, so that the explanation itself can be looked at.
"""

from __future__ import annotations

from itertools import pairwise

from tokenweight.pipeline.experiment import Column, Experiment, Finding, Lengths
from tokenweight.pipeline.measures import TaskMean, UnitMean
from tokenweight.reports.targets import llama_rows as rows
from tokenweight.reports.targets.columns import tokens_label

KINDS = {
    "long_recall": "long recall",
    "short_recall": "short recall",
    "name": "name",
    "introduction": "introduction",
    "hard": "hard",
    "easy": "easy",
}
SHORT = "nll-short_context"
LONG = "nll-long_recall"


def columns(lengths: Lengths) -> tuple[Column, ...]:
    """Mean scores by kind, AUC, recall by distance, NLL by kind."""
    return (
        *(_unit(f"abs_pmi-{kind}", label, "Mean abs(PMI)") for kind, label in KINDS.items()),
        Column("auc", "AUC", UnitMean("planted", "auc"), None, decimals=3),
        *_recall_by_distance(lengths.planted),
        *(_unit(f"nll-{kind}", label, "NLL", 3) for kind, label in KINDS.items()),
        _unit("nll", "all", "NLL", 3),
        _unit(SHORT, "short context", "NLL", 3),
    )


def _unit(task: str, label: str, group: str, decimals: int = 2) -> Column:
    return Column(task, label, UnitMean("planted", task), None, group, decimals)


def _recall_by_distance(distances_tokens: tuple[int, ...]) -> tuple[Column, ...]:
    """Share of values that are predicted greedily, by how far back the fact was last stated."""
    return tuple(
        Column(
            f"recall-{tokens_label(farthest)}",
            f"{tokens_label(nearest)}–{tokens_label(farthest)}" if nearest else f"≤{tokens_label(farthest)}",
            TaskMean("planted", length_tokens=farthest, tasks=("recall",)),
            None,
            "Recall by distance",
            decimals=1,
        )
        for nearest, farthest in pairwise((0, *distances_tokens))
    )


_THIRD = "Section 5.3, Table 4"
FINDINGS = (
    Finding("PPMI is bad on short context", _THIRD, SHORT, "ppmi", "unfrozen-sparse"),
    Finding("Sparse unfrozen is worst of Table 3 on short context", "Section 5.1", SHORT, "unfrozen-sparse", "unfrozen-dense"),
    Finding("Dense unfrozen keeps more of it, not all", "Section 5.1", SHORT, "unfrozen-dense", "uniform"),
    Finding("Sparse frozen keeps short context like uniform", "Section 5.2", SHORT, "frozen-sparse", "uniform", within=0.01),
    Finding("NPMI keeps short context best", _THIRD, SHORT, "uniform", "npmi"),
    Finding("NPMI fails to learn long context", _THIRD, LONG, "npmi", "uniform"),
    Finding("PPMI does not perform well on long context either", _THIRD, LONG, "ppmi", "frozen-sparse"),
    Finding("Shifting tempers PPMI at short context", _THIRD, SHORT, "ppmi", "sppmi"),
    Finding("Shifting tempers NPMI at long context", _THIRD, LONG, "npmi", "snpmi"),
    Finding("Dense unfrozen is better than uniform at long range", "Section 5.1", LONG, "uniform", "unfrozen-dense"),
    Finding("Sparse unfrozen is better than uniform at long range", "Section 5.1", LONG, "uniform", "unfrozen-sparse"),
    Finding("Sparse frozen is better than uniform at long range", "Section 5.2", LONG, "uniform", "frozen-sparse"),
    Finding("Dense frozen is on the level of uniform at long range", "Section 5.2", LONG, "frozen-dense", "uniform", within=0.02),
    Finding("Uniform has a lower perplexity than sparse unfrozen", "Table 9", "nll", "unfrozen-sparse", "uniform"),
    Finding("Uniform has a lower perplexity than dense frozen", "Table 9", "nll", "frozen-dense", "uniform"),
)  # fmt: skip

PLANTED = Experiment(
    name="planted",
    title="Weightings judged on the planted labels of the synthetic novel",
    paper_place="",
    rows=rows.WEIGHTINGS,
    stub=("Weighting", "Subset"),
    baseline="uniform",
    divergences=(
        "abs(PMI), in nats: between the row's model on the whole sequence and the un-extended base on short windows. "
        "AUC: how often a long recall has a higher abs(PMI) than another token. Recalls and introductions are the "
        "values of facts; a recall is long where the fact was last stated farther back than the short context.",
        "Values are means over sequences of a sequence's mean; recall in percent, NLL in nats.",
    ),
    seeds=3,
    findings=FINDINGS,
)
