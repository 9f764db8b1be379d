"""Columns by the names that files give them: those of columns.yaml, and here those that depend on a run's lengths.

Length columns follow the manifest. A length is beside the paper's column at the same multiple of
the base's context: 3k of a 1k base beside 24k of the paper's 8k base.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tokenweight.errors import UserError
from tokenweight.pipeline.experiment import Column, Lengths
from tokenweight.pipeline.measures import ColumnMean, Difference, Perplexity, PhraseToken, Side, TaskMean
from tokenweight.recipes.scales import read_yaml
from tokenweight.reports.benchmarks import LONGBENCH_CATEGORIES, LONGBENCH_TASKS, RULER_TASK_COUNT
from tokenweight.reports.paper.numbers import paper_table
from tokenweight.reports.targets.schema import Columns, ColumnsOf

PAPER_BASE_CONTEXT_TOKENS = 8192  # Llama-3
_COLUMNS: TypeAdapter[tuple[Columns, ...]] = TypeAdapter(tuple[Columns, ...])


def columns_at(wanted: Iterable[Columns], lengths: Lengths) -> tuple[Column, ...]:
    """The columns that a file asks for, at a run's lengths; UserError for a name that is not there."""
    found: list[Column] = []
    for entry in wanted:
        if isinstance(entry, Column):
            found.append(entry)
            continue
        asked = ColumnsOf(of=entry) if isinstance(entry, str) else entry
        known = _data()["columns"]
        if asked.of in _BY_LENGTH:
            made = tuple(_BY_LENGTH[asked.of](lengths, asked))
        elif asked.of in known:
            made = columns_at(_COLUMNS.validate_python(known[asked.of]), lengths)
        else:
            raise UserError(f"columns: {asked.of!r} is unknown; choose one of {', '.join((*known, *_BY_LENGTH))}")
        found += (_worded(column, asked) for column in made)
    return tuple(found)


def usual_columns(benchmarks: Iterable[str], lengths: Lengths, brief: bool) -> tuple[Column, ...]:
    """Columns of the benchmarks, in the order of the paper's tables; `brief`: of LongBench and BBH fewer, for many rows."""
    entries = (about.get("brief" if brief else "columns", about["columns"]) for about in _of(benchmarks).values())
    made = (column for entry in entries for column in columns_at(_COLUMNS.validate_python(entry), lengths))
    return tuple(replace(column, paper=None) for column in made)


def notes_of(benchmarks: Iterable[str], other_tokenizers: bool = False) -> tuple[str, ...]:
    """What to know about benchmarks; `other_tokenizers`: rows may answer other samples of RULER."""
    notes: list[str] = []
    for about in _of(benchmarks).values():
        notes += about.get("notes", [])
        notes += [about["other_tokenizers"]] if other_tokenizers and "other_tokenizers" in about else []
    return tuple(notes)


def headlines(columns: Iterable[Column], benchmarks: Iterable[str]) -> tuple[str, ...]:
    """The key of each benchmark's column that a figure shows."""
    keys = [column.key for column in columns]
    beginnings = (about.get("headline", name) for name, about in _of(benchmarks).items())
    return tuple(start if start in keys else [key for key in keys if key.startswith(start)][-1] for start in beginnings)


def phrase_columns(tokens: Sequence[str]) -> tuple[Column, ...]:
    """A column for each token of Table 1's phrase; the paper's where no record says which they are."""
    printed = list(dict.fromkeys(column for _, column in paper_table("table-1")))
    labels = [token_label(text) for text in tokens] or printed
    papers = labels if labels == printed else [None] * len(labels)
    return tuple(
        Column(f"token-{index}", label, PhraseToken(index, tuple(tokens)), paper, paper_label=paper)
        for index, (label, paper) in enumerate(zip(labels, papers, strict=True))
    )


def token_label(text: str) -> str:
    """A token's text as a heading: without the space before it; what would not be seen as an escape."""
    seen = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text.strip(" "))
    return seen or json.dumps(text)


def tokens_label(tokens: int) -> str:
    """8192 -> "8k"; what is no multiple of 1024 stays a plain number."""
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else str(tokens)


@cache
def _data() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml((Path(__file__).parent / "columns.yaml").read_text(encoding="utf-8"))
    return content


def _of(benchmarks: Iterable[str]) -> dict[str, Any]:
    """What is said of benchmarks, in the order of the paper's tables."""
    wanted = set(benchmarks)
    return {name: about for name, about in _data()["benchmarks"].items() if name in wanted}


def _worded(column: Column, asked: ColumnsOf) -> Column:
    """The column with what was asked for in place of its own."""
    words = {name: value for name in ("key", "label", "group") if (value := getattr(asked, name)) is not None}
    if asked.task:  # which named the columns it made by itself
        words = {name: value for name, value in words.items() if name == "key"}
    if "label" in words:
        words["label"] = words["label"].replace("{tokens}", str(getattr(column.measure, "length_tokens", "")))
    column = replace(column, shown=column.shown and asked.shown, **words)
    if not asked.difference:
        return column
    key = f"{column.key}-difference"
    return Column(key, column.label, Difference(column.key), key, "Difference")


def _at_paper(name: str, length_tokens: int, lengths: Lengths) -> str | None:
    """The paper's column at the same multiple of the base's context, or None between two."""
    tokens, remainder = divmod(length_tokens * PAPER_BASE_CONTEXT_TOKENS, lengths.ruler[0])
    return f"{name}-{tokens_label(tokens)}" if remainder == 0 else None


def _longbench(_: Lengths, __: ColumnsOf) -> Iterable[Column]:
    """LongBench full: plain mean over the 16 English tasks."""
    yield Column("longbench", "LongBench", TaskMean("longbench", tasks=LONGBENCH_TASKS), "longbench")


def _longbench_category(_: Lengths, asked: ColumnsOf) -> Iterable[Column]:
    measure = TaskMean("longbench", tasks=LONGBENCH_CATEGORIES[asked.task])
    yield Column(asked.task, asked.label or asked.task, measure, asked.task, asked.group or "")


def _longbench_sides(lengths: Lengths, _: ColumnsOf) -> Iterable[Column]:
    """LongBench at most and above the border: mean over the tasks that have samples there."""
    border, unit, at = lengths.longbench_split, lengths.longbench_unit, tokens_label(lengths.longbench_split)
    sides: tuple[tuple[Side, str, str], ...] = (("short", "le", "≤"), ("long", "gt", ">"))
    for side, word, sign in sides:
        measure = TaskMean("longbench", tasks=LONGBENCH_TASKS, side=side, border=border, unit=unit)
        yield Column(f"longbench-{word}{at}", f"{sign}{at}", measure, f"longbench-{word}8k", "LongBench")


def _ruler_lengths(lengths: Lengths, _: ColumnsOf) -> Iterable[Column]:
    """RULER at each length: mean over the 13 tasks' recalls."""
    for tokens in lengths.ruler:
        label = tokens_label(tokens)
        measure = TaskMean("ruler", length_tokens=tokens, task_count=RULER_TASK_COUNT)
        yield Column(f"ruler-{label}", label, measure, _at_paper("ruler", tokens, lengths), "RULER")


def _ruler(lengths: Lengths, _: ColumnsOf) -> Iterable[Column]:
    """RULER combined: mean over the lengths."""
    yield Column("ruler", "RULER", ColumnMean(tuple(f"ruler-{tokens_label(n)}" for n in lengths.ruler)), "ruler")


def _ruler_task(lengths: Lengths, asked: ColumnsOf) -> Iterable[Column]:
    """A task at each length, which is only computed with, and the mean over the lengths."""
    task, label, group = asked.task, asked.label or asked.task, asked.group or ""
    keys = {tokens: f"{task}-{tokens}" for tokens in lengths.ruler}
    for tokens, key in keys.items():
        measure = TaskMean("ruler", length_tokens=tokens, tasks=(task,))
        yield Column(key, f"{label} at {tokens}", measure, None, group, shown=False)
    yield Column(task, label, ColumnMean(tuple(keys.values())), None, group, decimals=1)


def _perplexity(lengths: Lengths, _: ColumnsOf) -> Iterable[Column]:
    """Perplexity by context length (Table 9)."""
    for tokens in lengths.perplexity or lengths.ruler:
        label, paper = tokens_label(tokens), _at_paper("perplexity", tokens, lengths)
        yield Column(f"perplexity-{label}", label, Perplexity(tokens), paper)


def _planted_recall(lengths: Lengths, _: ColumnsOf) -> Iterable[Column]:
    """Share of values that are predicted greedily, by how far back the fact was last stated."""
    for nearest, farthest in pairwise((0, *lengths.planted)):
        far = tokens_label(farthest)
        label = f"{tokens_label(nearest)}–{far}" if nearest else f"≤{far}"
        measure = TaskMean("planted", length_tokens=farthest, tasks=("recall",))
        yield Column(f"recall-{far}", label, measure, None, "Recall by distance", decimals=1)


_BY_LENGTH: dict[str, Callable[[Lengths, ColumnsOf], Iterable[Column]]] = {
    "longbench": _longbench,
    "longbench-category": _longbench_category,
    "longbench-sides": _longbench_sides,
    "ruler": _ruler,
    "ruler-lengths": _ruler_lengths,
    "ruler-task": _ruler_task,
    "perplexity": _perplexity,
    "planted-recall": _planted_recall,
}
