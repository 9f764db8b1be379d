"""Each table and figure of the paper as data: which recipes are its rows, which measures its columns at given lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tokenweight.errors import UserError
from tokenweight.pipeline.experiment import PAPER_LENGTHS, Column, Experiment, Lengths
from tokenweight.reports.targets import ablations, main_results, phrase, planted, pmi, ruler_tasks
from tokenweight.reports.targets.columns import perplexity_lengths, tokens_label

_TARGETS: tuple[tuple[Experiment, Callable[[Lengths], tuple[Column, ...]]], ...] = (
    (phrase.TABLE_1, lambda _: phrase.COLUMNS),
    (main_results.TABLE_3, main_results.table_3_columns),
    (ablations.TABLE_4, ablations.with_average),
    (ablations.TABLE_5, ablations.with_differences),
    (ablations.TABLE_7, ablations.with_averages),
    (main_results.TABLE_8, main_results.table_8_columns),
    (main_results.TABLE_9, perplexity_lengths),
    (main_results.TABLE_10, main_results.table_10_columns),
    (ablations.TABLE_11, ablations.with_differences),
    (ablations.FIGURE_1, ablations.only_differences),
    (ablations.FIGURE_2, ablations.only_differences),
    (pmi.FIGURE_3, lambda _: pmi.PMI_COLUMNS),
    (ablations.FIGURE_4, ablations.only_differences),
    (ablations.FIGURE_5, ablations.only_differences),
    (planted.PLANTED, planted.columns),
    (ruler_tasks.RULER_TASKS, ruler_tasks.columns),
)
ALL = "paper"  # the name that stands for every target of the paper
_COLUMNS = {experiment.name: columns for experiment, columns in _TARGETS}
TARGETS: dict[str, Experiment] = {experiment.name: experiment for experiment, _ in _TARGETS}  # columns: at_lengths


def at_lengths(name: str, lengths: Lengths) -> Experiment:
    """The target with its columns and labels at a run's lengths, beside which stand those of the paper's."""
    target = get_target(name)
    papers = target.paper_lengths_tokens
    paper_labels = {
        column.paper: column.label for column in _COLUMNS[name](PAPER_LENGTHS.model_copy(update={"ruler": papers}))
    }
    columns = tuple(
        replace(column, paper_label=paper_labels.get(column.paper) if column.paper else None)
        for column in _COLUMNS[name](lengths)
    )
    rows = tuple(
        replace(row, label=_scaled(row.label, lengths.ruler), paper_label=_scaled(row.label, papers))
        for row in target.rows
    )
    return target.model_copy(update={"columns": columns, "rows": rows})


def get_target(name: str) -> Experiment:
    """The target of that name, with labels for any lengths and without columns; UserError for an unknown one."""
    if name == "table-6":
        raise UserError(
            "target 'table-6': is measured on GPUs, not run from recipes; run benchmarks/training_cost.py --out FILE.json, "
            "then `tokenweight runtimes FILE.json`"
        )
    if name not in TARGETS:
        raise UserError(
            f"target {name!r}: unknown; choose one of {', '.join(TARGETS)}, or {ALL} for all, or give a file like my.yaml"
        )
    return TARGETS[name]


def _scaled(label: str, lengths_tokens: tuple[int, ...]) -> str:
    short, long = tokens_label(lengths_tokens[0]), tokens_label(lengths_tokens[-1])
    return label.replace("{short}", short).replace("{long}", long)
