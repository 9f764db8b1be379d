"""Columns by the names that files give them (columns.yaml). Those of lengths follow the run's: a length is beside the paper's
column at the same multiple of the base's context, 3k of a 1k base beside 24k of the paper's 8k base.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter

from tokenweight.errors import UserError, choose
from tokenweight.pipeline.experiment import Column, Lengths
from tokenweight.pipeline.measures import Difference, PhraseToken
from tokenweight.reports.paper.numbers import paper_cells
from tokenweight.reports.targets.schema import Columns, ColumnsOf, columns_data

PAPER_BASE_CONTEXT_TOKENS = 8192  # Llama-3
_COLUMNS: TypeAdapter[tuple[Columns, ...]] = TypeAdapter(tuple[Columns, ...])


def columns_at(wanted: Iterable[Columns], lengths: Lengths) -> tuple[Column, ...]:
    """The columns that a file asks for, at a run's lengths; UserError for a name that is not there."""
    found: list[Column] = []
    for entry in wanted:
        if isinstance(entry, Column):
            found.append(entry)
            continue
        asked, known = ColumnsOf(of=entry) if isinstance(entry, str) else entry, columns_data()["columns"]
        templates = known.get(asked.of) or known.get(f"{asked.of}/{asked.task}")
        if templates is None:
            raise UserError(f"columns: {asked.of!r} is unknown{choose(asked.of, known)}")
        found += (_worded(column, asked) for template in templates for column in _made(template, lengths, asked.task))
    return tuple(found)


def usual_columns(benchmarks: Iterable[str], lengths: Lengths, brief: bool) -> tuple[Column, ...]:
    """Columns of the benchmarks, in the order of the paper's tables; `brief`: of LongBench and BBH fewer, for many rows."""
    entries = (one.get("brief" if brief else "columns", one["columns"]) for one in about(benchmarks).values())
    made = (column for entry in entries for column in columns_at(_COLUMNS.validate_python(entry), lengths))
    return tuple(column.model_copy(update={"paper": None}) for column in made)


def notes_of(benchmarks: Iterable[str], *kinds: str) -> tuple[str, ...]:
    """What to know about benchmarks: `notes`, and `other_tokenizers` where rows may answer other samples of RULER."""
    return tuple(note for one in about(benchmarks).values() for kind in kinds for note in one.get(kind, ()))


def headlines(columns: Iterable[Column], benchmarks: Iterable[str]) -> tuple[str, ...]:
    """The key of each benchmark's column that a figure shows."""
    keys = [column.key for column in columns]
    beginnings = (one.get("headline", name) for name, one in about(benchmarks).items())
    return tuple(start if start in keys else [key for key in keys if key.startswith(start)][-1] for start in beginnings)


def phrase_columns(plain: PhraseToken, tokens: Sequence[str]) -> tuple[Column, ...]:
    """A column for each token of Table 1's phrase; the paper's where no record says which they are."""
    printed = [place.rpartition("/")[2] for place in paper_cells() if place.startswith("table-1/shade/")]
    labels = [token_label(text) for text in tokens] or printed
    columns = []
    for index, label in enumerate(labels):
        measure = plain.model_copy(update={"index": index, "tokens": tuple(tokens)})
        paper = label if labels == printed else None
        columns.append(Column(key=f"token-{index}", label=label, measure=measure, paper=paper, paper_label=paper))
    return tuple(columns)


def token_label(text: str) -> str:
    """A token's text as a heading: without the space before it; what would not be seen as an escape."""
    seen = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text.strip(" "))
    return seen or json.dumps(text)


def tokens_label(tokens: int) -> str:
    """8192 -> "8k"; what is no multiple of 1024 stays a plain number."""
    return f"{tokens // 1024}k" if tokens % 1024 == 0 else str(tokens)


def about(benchmarks: Iterable[str]) -> dict[str, Any]:
    """What is said of benchmarks, in the order of the paper's tables; of others one column, all samples' mean in percent."""
    wanted, known = dict.fromkeys(benchmarks), columns_data()["benchmarks"]
    plain = {name: {"label": name, "measure": {"kind": "sample-mean", "benchmark": name}} for name in wanted}
    keys = {name: re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in wanted}
    others = {name: {"columns": [plain[name] | {"key": key}], "headline": key} for name, key in keys.items()}
    return {name: one for name, one in (known | others | known).items() if name in wanted}


def _worded(column: Column, asked: ColumnsOf) -> Column:
    words = {name: value for name in ("key", "label", "group") if (value := getattr(asked, name)) is not None}
    if "label" in words:
        words["label"] = words["label"].replace("{tokens}", str(getattr(column.measure, "length_tokens", "")))
    column = column.model_copy(update={"shown": column.shown and asked.shown, **words})
    if not asked.difference:
        return column
    key = f"{column.key}-difference"
    return Column(key=key, label=column.label, measure=Difference(column=column.key), paper=key, group="Difference")


def _made(template: str | dict[str, Any], lengths: Lengths, task: str) -> Iterator[Column]:
    """The columns of an entry of columns.yaml, which says what its texts may hold."""
    if isinstance(template, str):
        yield from columns_at([ColumnsOf(of=template, task=task)], lengths)
        return
    template, split = dict(template), lengths.longbench_split
    if isinstance(other := template["measure"].get("columns"), str):
        template["measure"] = template["measure"] | {"columns": [c.key for c in _made(other, lengths, task)]}
    each = dict(lengths).get(template.pop("each", ""), (0,)) or lengths.ruler
    for nearest, tokens in pairwise((0, *each)):
        at = tokens_label(tokens)
        of_paper, between = divmod(tokens * PAPER_BASE_CONTEXT_TOKENS, lengths.ruler[0])
        texts = {"task": task, "split": tokens_label(split), "border": split, "unit": lengths.longbench_unit}
        texts |= {"at": at, "tokens": tokens, "paper": tokens_label(of_paper)}
        texts["range"] = f"{tokens_label(nearest)}–{at}" if nearest else f"≤{at}"
        filled = json.dumps(template)
        for name, value in texts.items():
            filled = filled.replace(f"{{{name}}}", json.dumps(str(value))[1:-1])
        column = Column.model_validate_json(filled)
        yield column.model_copy(update={"paper": None}) if between else column
