"""The audit in words: as Markdown (what does not follow first, then what holds and what was not checked), and of one table."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tokenweight.reports.audit import audit
from tokenweight.reports.audit.rules import Audit, ClaimCheck, EmphasisCheck, ValueCheck, rules
from tokenweight.reports.markdown import escape, line
from tokenweight.reports.paper.numbers import paper_cells, place_name
from tokenweight.webpage import plain_environment

Words = tuple[str, ...]  # a row of a table


def render(found: Audit) -> str:
    """All sections; an empty one says so."""
    environment = plain_environment(Path(__file__).parent)
    environment.filters |= {"line": line, "text": escape}
    return environment.get_template("audit.md.jinja").render(
        found=found,
        kinds=_kinds(found),
        **_differing(found),
        partly=[_claim(check) for check in found.claims if check.exceptions],
        complete=[_claim(check)[:3] for check in found.claims if not check.exceptions],
        readings=dict.fromkeys(f"{_scope(check)}: {check.reading}" for check in found.values if check.reading),
    )


def findings_about(target: str) -> dict[str, Any] | None:
    """What does not follow of a target, as rows of words; None where nothing of it was checked.

    `values` are (name, printed, recomputed, meaning), `marks` (cell, printed, recomputed), `claims` a sentence's five
    words, `checked` how many values derive from others. A value belongs to the table that prints it.
    """
    found = _audit_of_the_paper()
    of_rules = zip(rules().claims, found.claims, strict=True)
    claims = [_claim(check) for rule, check in of_rules if target in (rule.table, rule.than_table) and check.exceptions]
    checked = sum(check.cell.startswith(f"{target}/") for check in found.values)
    if not checked and not claims and not any(check.cell.startswith(f"{target}/") for check in found.emphasis):
        return None
    return {**_differing(found, f"{target}/"), "claims": claims, "checked": checked}


def _differing(found: Audit, prefix: str = "") -> dict[str, list[Words]]:
    """Values and marks that do not follow, of the cells whose place begins so."""
    return {
        "values": [_value(check) for check in found.values if check.cell.startswith(prefix) and not check.follows],
        "marks": [_marks(check) for check in found.emphasis if check.cell.startswith(prefix) and not check.follows],
    }


@cache
def _audit_of_the_paper() -> Audit:
    return audit(paper_cells())


def _kinds(found: Audit) -> Iterable[Words]:
    """(kind, checked, follow, do not)."""
    outcomes = [(value.kind, value.follows) for value in found.values]
    outcomes += [("bold, italic, underline", mark.follows) for mark in found.emphasis]
    outcomes += [("sentence", not claim.exceptions) for claim in found.claims]
    by_kind: dict[str, list[bool]] = {}
    for kind, follows in outcomes:
        by_kind.setdefault(kind, []).append(follows)
    return [(kind, str(len(each)), str(sum(each)), str(len(each) - sum(each))) for kind, each in by_kind.items()]


def _value(check: ValueCheck) -> Words:
    sign = "+" if check.cell.endswith("-difference") else ""
    decimals = len(check.printed.partition(".")[2]) + 1
    recomputed, low, high = (f"{v:{sign}.{decimals}f}" for v in (check.recomputed, check.low, check.high))
    span = f" ({low} to {high})" if low != high else ""
    sources, instead = (
        ", ".join(f"{place_name(place)} {printed}" for place, printed in cells.items())
        for cells in (check.sources, check.follows_with)
    )
    meaning = f"{check.kind.capitalize()} of {sources} ({check.place})."
    meaning += f" It follows with {instead}." if instead else ""
    return place_name(check.cell), check.printed, recomputed + span, f"{meaning} {check.remark}".strip()


def _marks(check: EmphasisCheck) -> Words:
    return place_name(check.cell), " ".join(check.printed) or "none", " ".join(check.recomputed) or "none"


def _claim(check: ClaimCheck) -> Words:
    """Place, words, how it is read, the exceptions, what they mean."""
    listed = "; ".join(
        f"{comparison.text} is within rounding" if comparison.outcome == "within rounding" else f"not {comparison.text}"
        for comparison in check.exceptions
    )
    counted = f"{len(check.exceptions)} of {len(check.comparisons)}: {listed}"
    return check.place, f"“{check.quote}”", check.reading, counted, check.remark


def _scope(check: ValueCheck) -> str:
    """What a reading is of: a column of a table, or a table, or one value."""
    table, row, column = check.cell.split("/")
    of = {"mean": f"{table}/{column}", "weighted mean": f"{table}/{column}", "repeated value": table}
    return f"{place_name(of.get(check.kind, f'{table}/{row}'))} ({check.kind})"
