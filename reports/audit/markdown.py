"""The audit in words: as Markdown (what does not follow first, then what holds and what was not checked), and of one table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from tokenweight.reports.audit import audit, rules
from tokenweight.reports.audit.rules import Audit, ClaimCheck, EmphasisCheck, ValueCheck
from tokenweight.reports.markdown import escape, line
from tokenweight.reports.paper.numbers import paper_cells, place_name

_PREAMBLE = (
    "Written by `tokenweight audit`: each number of the paper that derives from others printed there, recomputed from "
    "them. A printed number stands for all that round to it, so a value follows if some such numbers give it. That a "
    "value does not follow says that it and its sources cannot all be right as read here, not which of them is wrong; "
    "that it follows does not say that it is right. Rows and columns have the names of `reports/paper/by_row.json`."
)


def render(found: Audit) -> str:
    """All sections; an empty one says so."""
    wrong = [check for check in found.values if not check.follows]
    marks = [check for check in found.emphasis if not check.follows]
    partly, whole = ([c for c in found.claims if c.holds is holds] for holds in (False, True))
    parts = [
        "# The paper's own numbers, recomputed",
        _PREAMBLE,
        _summary(found),
        f"## {len(wrong)} values that do not follow",
        _table(("value", "printed", "recomputed", "what it means"), map(value_words, wrong)),
        f"## {len(marks)} marks (bold, italic, underline) that do not follow",
        _table(("cell", "printed", "recomputed"), map(mark_words, marks))
        if marks
        else _all_marks_follow(found.emphasis),
        f"## {len(partly)} sentences with exceptions",
        "Held against the cells as read here; a gentler reading may hold.",
        _table(("place", "words", "read as", "exceptions", "what it means"), map(claim_words, partly)),
        f"## {len(whole)} sentences that hold",
        _table(("place", "words", "read as"), map(_claim, whole)),
        "## Relations",
        *map(escape, found.relations),
        "## Readings",
        "What these checks rest on and the paper does not say:",
        _list(dict.fromkeys(f"{_scope(check)}: {check.reading}" for check in found.values if check.reading)),
        "## Not checked",
        _list(found.unchecked),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(found: Audit) -> str:
    outcomes: dict[str, list[bool]] = {}
    for value in found.values:
        outcomes.setdefault(value.kind, []).append(value.follows)
    outcomes["bold, italic, underline"] = [mark.follows for mark in found.emphasis]
    outcomes["sentence"] = [claim.holds for claim in found.claims]
    rows = ((kind, str(len(each)), str(sum(each)), str(len(each) - sum(each))) for kind, each in outcomes.items())
    return _table(("kind", "checked", "follow", "do not"), rows)


def value_words(check: ValueCheck) -> tuple[str, ...]:
    """A value that does not follow: its name, printed, recomputed, what it means."""
    sign, decimals = "+" if check.cell.endswith("-difference") else "", _decimals(check.printed) + 1
    recomputed, low, high = (f"{v:{sign}.{decimals}f}" for v in (check.recomputed, check.low, check.high))
    span = f" ({low} to {high})" if low != high else ""
    sources = ", ".join(f"{place_name(place)} {printed}" for place, printed in check.sources.items())
    instead = ", ".join(f"{place_name(place)} {printed}" for place, printed in check.follows_with.items())
    meaning = (
        f"{check.kind.capitalize()} of {sources} ({check.place}).",
        f"It follows with {instead}." if instead else "",
        check.remark,
    )
    return place_name(check.cell), check.printed, recomputed + span, " ".join(filter(None, meaning))


def _decimals(printed: str) -> int:
    return len(printed.partition(".")[2])


def mark_words(check: EmphasisCheck) -> tuple[str, ...]:
    """A cell's marks: its name, printed, recomputed."""
    return place_name(check.cell), " ".join(check.printed) or "none", " ".join(check.recomputed) or "none"


def _all_marks_follow(checks: Sequence[EmphasisCheck]) -> str:
    marked = sum(bool(check.printed) for check in checks)
    rest = f"no other of the {len(checks)} cells has one"
    return f"All {marked} marked cells have the mark that their caption's rule gives, and {rest}."


def _claim(check: ClaimCheck) -> tuple[str, ...]:
    return check.place, f"“{check.quote}”", check.reading


def claim_words(check: ClaimCheck) -> tuple[str, ...]:
    """A sentence with exceptions: place, words, how it is read, the exceptions, what they mean."""
    listed = "; ".join(
        f"{comparison.text} is within rounding" if comparison.outcome == "within rounding" else f"not {comparison.text}"
        for comparison in check.exceptions
    )
    counted = f"{len(check.exceptions)} of {len(check.comparisons)}: {listed}"
    return *_claim(check), counted, check.remark


def _scope(check: ValueCheck) -> str:
    """What a reading is of: a column of a table, or a table, or one value."""
    table, row, column = check.cell.split("/")
    of = {"mean": f"{table}/{column}", "weighted mean": f"{table}/{column}", "repeated value": table}
    return f"{place_name(of.get(check.kind, f'{table}/{row}'))} ({check.kind})"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = [line(map(escape, row)) for row in rows]
    return "\n".join((line(headings), line("---" for _ in headings), *body)) if body else "None."


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {escape(text)}" for text in texts)


@dataclass(frozen=True)
class Findings:
    """Rows of (name, printed, recomputed, meaning), (cell, printed, recomputed), and of a sentence's five words."""

    values: tuple[tuple[str, ...], ...]
    marks: tuple[tuple[str, ...], ...]
    claims: tuple[tuple[str, ...], ...]
    checked: int  # values of the target that derive from others


def findings_about(target: str) -> Findings | None:
    """None where nothing of the target was checked. A value belongs to the table it stands in."""
    found = _audit()
    here = [check for check in found.values if check.cell.startswith(f"{target}/")]
    marks = [check for check in found.emphasis if check.cell.startswith(f"{target}/")]
    claims = [
        check
        for rule, check in zip(rules.claims(), found.claims, strict=True)
        if target in (rule.table, rule.than_table) and not check.holds
    ]
    if not here and not marks and not claims:
        return None
    return Findings(
        values=tuple(value_words(check) for check in here if not check.follows),
        marks=tuple(mark_words(check) for check in marks if not check.follows),
        claims=tuple(claim_words(check) for check in claims),
        checked=len(here),
    )


@cache
def _audit() -> Audit:
    return audit(paper_cells())
