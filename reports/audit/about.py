"""What the audit of the paper's own numbers finds about one table or figure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tokenweight.reports.audit import audit, rules
from tokenweight.reports.audit.markdown import claim_words, mark_words, value_words
from tokenweight.reports.audit.rules import Audit
from tokenweight.reports.paper.numbers import paper_cells


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
