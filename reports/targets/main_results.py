"""Tables 3, 8, 9 and 10: the same eight models, measured four ways."""

from __future__ import annotations

from dataclasses import replace

from tokenweight.pipeline.experiment import Column, Emphasis, Experiment, Finding, Lengths
from tokenweight.pipeline.measures import TaskMean
from tokenweight.reports.benchmarks import LONGBENCH_CATEGORIES
from tokenweight.reports.targets import columns as shared
from tokenweight.reports.targets import llama_rows as rows

LONGBENCH_UNIT = (
    "The paper does not say in which unit LongBench samples are split by length; here it is the evaluated "
    "model's tokens, before truncation, unless the recipe says words."
)
BBH_SHOTS = "BBH is run with the 3 exemplars that exist for each task; the paper says 5-shot."
CATEGORY_LABELS = {
    "single-doc-qa": "Single Doc QA",
    "multi-doc-qa": "Multi-Doc QA",
    "summarization": "Summarization",
    "few-shot": "Few-Shot",
    "synthetic": "Synthetic",
    "code": "Code",
}


def table_3_columns(lengths: Lengths) -> tuple[Column, ...]:
    """MMLU, LongBench, RULER, and their averages."""
    return (
        shared.mmlu("full", "MMLU"),
        shared.longbench("full", "LongBench"),
        *shared.longbench_sides(lengths),
        shared.ruler_combined(lengths, "combined", "RULER"),
        *shared.ruler_lengths(lengths),
        shared.average_long(),
        shared.average_full(),
    )


def table_8_columns(_: Lengths) -> tuple[Column, ...]:
    """LongBench, whole and by category."""
    categories = (
        Column(key, CATEGORY_LABELS[key], TaskMean("longbench", tasks=tasks), key)
        for key, tasks in LONGBENCH_CATEGORIES.items()
    )
    return (shared.longbench("full"), *categories)


def table_10_columns(_: Lengths) -> tuple[Column, ...]:
    """MMLU and BBH."""
    return (shared.mmlu(), shared.bbh())


_FIRST, _SECOND = "Section 5.1", "Section 5.2"
TABLE_3_FINDINGS = (
    Finding("Sparse unfrozen is best for long context, not uniform", _FIRST, "ruler", "unfrozen-sparse", "uniform"),
    Finding("Sparse unfrozen is best for long context, not sparse frozen", _FIRST, "ruler", "unfrozen-sparse", "frozen-sparse"),
    Finding("Sparse unfrozen performs worst on MMLU", _FIRST, "mmlu", "uniform", "unfrozen-sparse"),
    Finding("Dense unfrozen retains more of MMLU", _FIRST, "mmlu", "unfrozen-dense", "unfrozen-sparse"),
    Finding("Dense weights improve long context", "Section 6", "average-long", "unfrozen-dense", "uniform"),
    Finding("Sparse frozen is best overall, not uniform", _SECOND, "average-full", "frozen-sparse", "uniform"),
    Finding("Sparse frozen is best overall, not sparse unfrozen", _SECOND, "average-full", "frozen-sparse", "unfrozen-sparse"),
    Finding("Dense frozen is like uniform for long context", _SECOND, "average-long", "frozen-dense", "uniform", within=1.0),
    Finding("Dense frozen is subpar overall", _SECOND, "average-full", "uniform", "frozen-dense"),
    Finding("LCDE is worse, above all at the greatest length", "Section 5.3", "ruler-32k", "uniform", "lcde"),
)  # fmt: skip
TABLE_9_FINDINGS = tuple(
    Finding(f"Uniform has the lowest perplexity: {label}", "Table 9", "perplexity-32k", row, "uniform")
    for row, label in (
        ("unfrozen-sparse", "sparse unfrozen"),
        ("unfrozen-dense", "dense unfrozen"),
        ("frozen-sparse", "sparse frozen"),
        ("frozen-dense", "dense frozen"),
    )
)

TABLE_3 = Experiment(
    name="table-3",
    title="Main results on MMLU, LongBench and RULER (higher is better)",
    paper_place="Table 3",
    rows=rows.TABLE_3_ROWS,
    stub=("Weighting", "Subset"),
    # "The largest value of each column is bolded (values in italic are not considered)."
    emphasis=Emphasis(bold="largest", set_apart=(("no-train-8k", "mmlu"),)),
    baseline="uniform",
    divergences=(LONGBENCH_UNIT,),
    findings=TABLE_3_FINDINGS,
)

TABLE_8 = Experiment(
    name="table-8",
    title="LongBench by task category (higher is better)",
    paper_place="Table 8",
    rows=(
        replace(rows.NO_TRAIN_SHORT, label="{short} Baseline", fills=None),
        replace(rows.NO_TRAIN_LONG, label="{long} Baseline"),
        replace(rows.LCDE, rule_below="full"),
        rows.UNIFORM,
        replace(rows.UNFROZEN_SPARSE, rule_below="partial"),
        rows.UNFROZEN_DENSE,
        replace(rows.FROZEN_SPARSE, rule_below="partial"),
        rows.FROZEN_DENSE,
    ),
    stub=("Weighting", "Subset"),
    emphasis=Emphasis(bold="largest"),
    baseline="uniform",
)

TABLE_9 = Experiment(
    name="table-9",
    title="Perplexity by context length on validation documents (lower is better)",
    paper_place="Table 9",
    rows=(
        rows.flat(rows.NO_TRAIN_LONG, "{long} no-train"),
        rows.flat(rows.LCDE, "LCDE"),
        rows.flat(rows.UNIFORM, "Uniform", rule_below=True),
        rows.flat(rows.UNFROZEN_SPARSE, "Sparse"),
        rows.flat(rows.UNFROZEN_DENSE, "Dense", rule_below=True),
        rows.flat(rows.FROZEN_SPARSE, "Sparse frozen"),
        rows.flat(rows.FROZEN_DENSE, "Dense frozen"),
    ),
    stub=("Context",),
    emphasis=Emphasis(bold="smallest"),
    baseline="uniform",
    findings=TABLE_9_FINDINGS,
)

TABLE_10 = Experiment(
    name="table-10",
    title="MMLU and BIG-Bench-Hard (higher is better)",
    paper_place="Table 10",
    rows=(
        rows.flat(rows.NO_TRAIN_SHORT, "{short}"),
        rows.flat(rows.NO_TRAIN_LONG, "{long} no train", rule_below=True),
        rows.flat(rows.LCDE, "LCDE"),
        rows.flat(rows.UNIFORM, "Uniform", rule_below=True),
        rows.flat(rows.UNFROZEN_SPARSE, "Unfrozen Sparse"),
        rows.flat(rows.UNFROZEN_DENSE, "Unfrozen Dense", rule_below=True),
        rows.flat(rows.FROZEN_SPARSE, "Frozen Sparse"),
        rows.flat(rows.FROZEN_DENSE, "Frozen Dense"),
    ),
    baseline="uniform",
    divergences=(BBH_SHOTS,),
    correlate=("mmlu", "bbh"),
    correlations_printed=(("Pearson", "0.9289"), ("Spearman", "0.9286")),
)
