"""The columns and notes of each benchmark in tables that are not the paper's: those of Tables 3, 8, 9 and 10."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tokenweight.pipeline.experiment import Column, Lengths
from tokenweight.pipeline.measures import Perplexity, SampleMean, TaskMean
from tokenweight.reports.benchmarks import LONGBENCH_CATEGORIES
from tokenweight.reports.targets import columns as shared
from tokenweight.reports.targets import planted
from tokenweight.reports.targets.main_results import BBH_SHOTS, CATEGORY_LABELS, LONGBENCH_UNIT
from tokenweight.reports.targets.pmi import PMI_COLUMNS, PMI_NOTES

OTHER_SAMPLES = (
    "RULER's samples are made to fill each length with the model's own tokenizer: models of different tokenizers answer "
    "different samples of the same kind."
)


def _bbh(_: Lengths) -> tuple[Column, ...]:
    return (
        Column("bbh", "strict", SampleMean("bbh"), None, "BBH"),
        Column("bbh-tolerant", "tolerant", SampleMean("bbh", tolerant=True), None, "BBH"),
    )


def _longbench(lengths: Lengths) -> tuple[Column, ...]:
    categories = (
        Column(f"longbench-{key}", CATEGORY_LABELS[key], TaskMean("longbench", tasks=tasks), None, "LongBench")
        for key, tasks in LONGBENCH_CATEGORIES.items()
    )
    return (*_longbench_brief(lengths), *categories)


def _longbench_brief(lengths: Lengths) -> tuple[Column, ...]:
    return (shared.longbench("full", "LongBench"), *shared.longbench_sides(lengths))


def _ruler(lengths: Lengths) -> tuple[Column, ...]:
    return (shared.ruler_combined(lengths, "combined", "RULER"), *shared.ruler_lengths(lengths))


def _perplexity(lengths: Lengths) -> tuple[Column, ...]:
    labelled = ((tokens, shared.tokens_label(tokens)) for tokens in lengths.perplexity)
    return tuple(Column(f"perplexity-{label}", label, Perplexity(n), None, "Perplexity") for n, label in labelled)


_COLUMNS: dict[str, Callable[[Lengths], tuple[Column, ...]]] = {
    "mmlu": lambda _: (shared.mmlu(),),
    "bbh": _bbh,
    "longbench": _longbench,
    "ruler": _ruler,
    "perplexity": _perplexity,
    "pmi": lambda _: PMI_COLUMNS,
    "planted": planted.columns,
}
_BRIEF = {**_COLUMNS, "bbh": lambda _: (shared.bbh(),), "longbench": _longbench_brief}
# The column of each benchmark that the figure of a sweep shows, by the beginning of its key; of several the last.
_HEADLINES = {"perplexity": "perplexity-", "pmi": "pmi-mean", "planted": "nll-long_recall"}
_NOTES = {"bbh": (BBH_SHOTS,), "longbench": (LONGBENCH_UNIT,), "pmi": PMI_NOTES, "planted": planted.PLANTED.divergences}


def columns_of(benchmarks: Iterable[str], lengths: Lengths, brief: bool) -> tuple[Column, ...]:
    """Columns of the benchmarks, in the order of the paper's tables; `brief`: of LongBench and BBH fewer, for many rows."""
    known = _BRIEF if brief else _COLUMNS
    made = (column for name in known if name in set(benchmarks) for column in known[name](lengths))
    return tuple(replace(column, paper=None) for column in made)


def notes_of(benchmarks: Iterable[str], other_tokenizers: bool) -> tuple[str, ...]:
    """What to know about them; `other_tokenizers`: rows may answer other samples of RULER."""
    notes = {**_NOTES, "ruler": (OTHER_SAMPLES,)} if other_tokenizers else _NOTES
    return tuple(note for name in _COLUMNS if name in set(benchmarks) for note in notes.get(name, ()))


def headlines(columns: Iterable[Column], benchmarks: Iterable[str]) -> tuple[str, ...]:
    """The key of each benchmark's column that a figure shows."""
    keys = [column.key for column in columns]
    found = []
    for name in (name for name in _COLUMNS if name in set(benchmarks)):
        beginning = _HEADLINES.get(name, name)
        found.append(beginning if beginning in keys else [key for key in keys if key.startswith(beginning)][-1])
    return tuple(found)
