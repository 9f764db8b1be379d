"""Audit of the paper's own numbers: what is derived there, recomputed from what it is derived from.

A printed number may be any value that rounds to it. A derived value follows if some such values of its sources
give some such value of it; that a value follows does not say that it is right.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd

from tokenweight.pipeline.experiment import Emphasis
from tokenweight.reports.audit.checks import Audit, Cells, Check, check_claim, check_values, rules
from tokenweight.reports.display import emphasise
from tokenweight.reports.markdown import escape, line
from tokenweight.reports.model import PaperNumber
from tokenweight.reports.paper.numbers import paper_cells, place_name
from tokenweight.reports.targets import TARGETS, get_target
from tokenweight.webpage import plain_environment


def audit(cells: Cells) -> Audit:
    """Check all that `rules.json` says how to check, on these cells, by place as of `paper_cells()`."""
    claims = (check_claim(claim, cells) for claim in rules().claims)
    return Audit(checks=(*check_values(cells), *check_emphasis(cells), *claims), unchecked=rules().unchecked)


def check_emphasis(cells: Cells) -> Iterator[Check]:
    """Bold, italic and underline of each cell of a table, by the rule in its caption."""
    columns: dict[tuple[str, str], dict[str, PaperNumber]] = {}
    for place, number in cells.items():
        table, row, column = place.split("/")
        of_column = columns.setdefault((table, column), {})
        if number.value is not None:
            of_column[row] = number
    for (table, column), numbers in columns.items():
        has_rule = table in TARGETS and not column.endswith("-difference")
        rule = get_target(table).emphasis if has_rule else Emphasis()
        marks = emphasise(rule, column, {row: number.value for row, number in numbers.items()}, 2)[0]
        for row, number in numbers.items():
            printed, recomputed = number.emphasis, marks.get(row, ())
            yield Check(
                of="mark",
                kind="bold, italic, underline",
                about=f"{table}/{row}/{column}",
                tables=(table,),
                printed=" ".join(printed) or "none",
                recomputed=" ".join(recomputed) or "none",
                follows=set(printed) == set(recomputed),
            )


def render(found: Audit) -> str:
    """The audit as Markdown: what does not follow first, then what holds and what was not checked."""
    outcomes = pd.DataFrame([(check.kind, check.follows) for check in found.checks], columns=["kind", "follows"])
    counts = outcomes.groupby("kind", sort=False)["follows"].agg(["size", "sum"])
    environment = plain_environment(Path(__file__).parent)
    environment.filters |= {"line": line, "text": escape}
    return environment.get_template("audit.md.jinja").render(
        found=found,
        kinds=[(kind, str(n), str(follow), str(n - follow)) for kind, n, follow in counts.itertuples()],
        readings=dict.fromkeys(f"{_scope(c)}: {c.reading}" for c in found.checks if c.reading and c.of == "value"),
    )


def findings_about(target: str) -> list[Check]:
    return [check for check in _of_the_paper().checks if target in check.tables]


_of_the_paper = cache(lambda: audit(paper_cells()))


def _scope(check: Check) -> str:
    """What a reading is of: a column of a table, or a table, or one value."""
    table, row, column = check.about.split("/")
    of = {"mean": f"{table}/{column}", "weighted mean": f"{table}/{column}", "repeated value": table}
    return f"{place_name(of.get(check.kind, f'{table}/{row}'))} ({check.kind})"
