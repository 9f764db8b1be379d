"""Columns that several tables share, with their definitions.

Length columns follow the manifest. A length stands beside the paper's column at the same multiple of
the base's context: 3k of a 1k base beside 24k of the paper's 8k base.
"""

from __future__ import annotations

from dataclasses import replace

from tokenweight.pipeline.experiment import Column, Lengths
from tokenweight.pipeline.measures import ColumnMean, Difference, Perplexity, SampleMean, Side, TaskMean
from tokenweight.reports.benchmarks import LONGBENCH_TASKS, RULER_TASK_COUNT

PAPER_BASE_CONTEXT_TOKENS = 8192  # Llama-3


def tokens_label(tokens: int) -> str:
    """8192 -> "8k"; what is no multiple of 1024 stays a plain number."""
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else str(tokens)


def paper_length_label(length_tokens: int, lengths: Lengths) -> str | None:
    """The paper's length at the same multiple of the base's context, or None between two."""
    tokens, remainder = divmod(length_tokens * PAPER_BASE_CONTEXT_TOKENS, lengths.ruler[0])
    return tokens_label(tokens) if remainder == 0 else None


def mmlu(label: str = "MMLU", group: str = "") -> Column:
    """MMLU, 5-shot accuracy, micro-averaged."""
    return Column("mmlu", label, SampleMean("mmlu"), "mmlu", group)


def bbh() -> Column:
    """BIG-Bench-Hard, chain of thought, strict extraction, micro-averaged."""
    return Column("bbh", "BBH", SampleMean("bbh"), "bbh")


def longbench(label: str = "LongBench", group: str = "") -> Column:
    """LongBench full: plain mean over the 16 English tasks."""
    return Column("longbench", label, TaskMean("longbench", tasks=LONGBENCH_TASKS), "longbench", group)


def longbench_sides(lengths: Lengths) -> tuple[Column, Column]:
    """LongBench at most and above the border: mean over the tasks that have samples there."""
    border = tokens_label(lengths.longbench_split)

    def side(name: Side) -> TaskMean:
        return TaskMean(
            "longbench",
            tasks=LONGBENCH_TASKS,
            side=name,
            border=lengths.longbench_split,
            unit=lengths.longbench_unit,
        )

    return (
        Column(f"longbench-le{border}", f"≤{border}", side("short"), "longbench-le8k", "LongBench"),
        Column(f"longbench-gt{border}", f">{border}", side("long"), "longbench-gt8k", "LongBench"),
    )


def ruler_lengths(lengths: Lengths) -> tuple[Column, ...]:
    """RULER at each length: mean over the 13 tasks' recalls."""
    columns = []
    for length_tokens in lengths.ruler:
        paper = paper_length_label(length_tokens, lengths)
        columns.append(
            Column(
                f"ruler-{tokens_label(length_tokens)}",
                tokens_label(length_tokens),
                TaskMean("ruler", length_tokens=length_tokens, task_count=RULER_TASK_COUNT),
                f"ruler-{paper}" if paper else None,
                "RULER",
            )
        )
    return tuple(columns)


def ruler_combined(lengths: Lengths, label: str = "RULER", group: str = "") -> Column:
    """RULER combined: mean over the lengths."""
    keys = tuple(column.key for column in ruler_lengths(lengths))
    return Column("ruler", label, ColumnMean(keys), "ruler", group)


def average_long(label: str = "long", group: str = "Average") -> Column:
    """Long-Average: mean of RULER combined and LongBench full (Section 4, Evaluation)."""
    return Column("average-long", label, ColumnMean(("ruler", "longbench")), "average-long", group)


def average_full(label: str = "full", group: str = "Average") -> Column:
    """Average full: mean of MMLU, LongBench full and RULER combined.

    The paper does not define it. This mean gives the printed value, within rounding, in every row of
    Tables 3, 4 and 7 but one: Unfrozen Dense of Table 3, where it does with Table 8's 45.07 in place
    of Table 3's 45.09 for LongBench.
    """
    return Column("average-full", label, ColumnMean(("mmlu", "longbench", "ruler")), "average-full", group)


def perplexity_lengths(lengths: Lengths) -> tuple[Column, ...]:
    """Perplexity by context length (Table 9)."""
    columns = []
    for length_tokens in lengths.perplexity or lengths.ruler:
        paper = paper_length_label(length_tokens, lengths)
        key = f"perplexity-{tokens_label(length_tokens)}"
        paper_key = f"perplexity-{paper}" if paper else None
        columns.append(Column(key, str(length_tokens), Perplexity(length_tokens), paper_key, "Context"))
    return tuple(columns)


def difference(of: Column) -> Column:
    """A column's value less the reference row's."""
    return Column(f"{of.key}-difference", of.label, Difference(of.key), f"{of.key}-difference", "Difference")


def hidden(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Columns that are only computed with."""
    return tuple(replace(column, shown=False) for column in columns)
