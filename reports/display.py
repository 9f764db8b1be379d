"""What all renderers print alike: numbers as text, the two dashes, n of a column."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tokenweight.latex import environment
from tokenweight.reports.model import Cell, Report, ReportColumn
from tokenweight.reports.paper.numbers import paper_tables

NOT_IN_PAPER = "-"
NO_NUMBER = "—"
SIGNIFICANT = 0.05
_LEAST_P = 0.001  # smaller ones are printed as "<0.001"


def value_text(cell: Cell, column: ReportColumn) -> str:
    """Our value as printed; `-` where the paper has no number there, `—` where a note says why there is none."""
    if cell.status == "not_in_paper":
        return NOT_IN_PAPER
    if cell.value is None:
        return NO_NUMBER
    return number_text(cell.value, column) + spread_text(cell, column)


def paper_text(cell: Cell) -> str:
    """The paper's number as printed, "" where it has no such cell."""
    return cell.paper.printed if cell.paper else ""


def paper_beside(cell: Cell) -> str:
    """The paper's number as printed ("<0.01" is one), "" where it has no such cell or leaves it empty."""
    return "" if paper_text(cell) == NOT_IN_PAPER else paper_text(cell)


def less_paper_text(cell: Cell, column: ReportColumn) -> str:
    """Ours less the paper's, with its sign; "" where the paper has no number, a dash where we have none."""
    if cell.paper is None or cell.paper.value is None:
        return ""
    if cell.less_paper is None:
        return NO_NUMBER
    return number_text(cell.less_paper, column, signed=True)


def spread_text(cell: Cell, column: ReportColumn) -> str:
    """ " ± 0.12" over several seeds, "" with one."""
    return "" if cell.spread is None else f" ± {cell.spread:.{column.decimals}f}"


def number_text(value: float, column: ReportColumn, *, signed: bool = False) -> str:
    """A number at the column's precision; differences carry their sign, and zero has none of its own."""
    text = f"{value:{'+' if signed or column.signed else ''}.{column.decimals}f}"
    return text.lstrip("+-") if float(text) == 0 else text


def interval_text(cell: Cell, column: ReportColumn) -> str:
    """ "[40.10, 50.20]", or the dash of the cell where there is none."""
    if cell.ci_low is None or cell.ci_high is None:
        return NOT_IN_PAPER if cell.status == "not_in_paper" else NO_NUMBER
    return _bounds(cell.ci_low, cell.ci_high, column, signed=False)


def _bounds(low: float, high: float, column: ReportColumn, *, signed: bool) -> str:
    return f"[{number_text(low, column, signed=signed)}, {number_text(high, column, signed=signed)}]"


def difference_text(cell: Cell, column: ReportColumn) -> str:
    """ "+1.20 [+0.30, +2.10], p 0.012" with p corrected; a dash without a baseline's value to compare with."""
    difference = cell.difference
    if difference is None or difference.value is None:
        return NOT_IN_PAPER if cell.status == "not_in_paper" else NO_NUMBER
    text = number_text(difference.value, column, signed=True)
    if difference.p_corrected is None:
        return f"{text} (not tested)"
    if difference.ci_low is not None and difference.ci_high is not None:
        text += f" {_bounds(difference.ci_low, difference.ci_high, column, signed=True)}"
    return f"{text}, p {p_text(difference.p_corrected)}"


def p_text(p: float) -> str:
    """Three decimals, "<0.001" below."""
    return f"<{_LEAST_P}" if p < _LEAST_P else f"{p:.3f}"


def is_significant(cell: Cell) -> bool:
    """Whether the cell's difference to its baseline holds after correction."""
    p = cell.difference.p_corrected if cell.difference else None
    return p is not None and p < SIGNIFICANT


def difference_legend(report: Report) -> str:
    """What the differences and their intervals are, then :func:`test_legend`."""
    signed = any(column.signed for column in report.columns)
    return words("difference_legend", report.baseline, signed, test_legend(report))


def test_legend(report: Report) -> str:
    """Which tests were made, on what, and how p is corrected."""
    differences = [cell.difference for cell in report.cells if cell.difference]
    tests = " ".join(difference.test for difference in differences if difference.test)
    return words("test_legend", tests, sorted({d.reason for d in differences if d.reason}), report.comparisons)


def interval_legend() -> str:
    """What is resampled, and where there is no interval."""
    return words("interval_legend")


def has_differences(report: Report) -> bool:
    """Whether any cell was compared with a baseline."""
    return any(cell.difference is not None for cell in report.cells)


def n_text(cell: Cell) -> str:
    """ "n 160", "n 12 of 160" where samples lack, "" where the paper has no number."""
    if cell.status == "not_in_paper":
        return ""
    if cell.n_expected is not None and cell.n_expected != cell.n:
        return f"n {cell.n} of {cell.n_expected}"
    return f"n {cell.n}"


def column_n_text(report: Report, index: int) -> str:
    """Samples behind a column's cells: one number where all have as many, else the range."""
    sizes = [row.cells[index].n for row in report.rows if row.cells[index].status != "not_in_paper"]
    if not sizes:
        return ""
    return str(sizes[0]) if min(sizes) == max(sizes) else f"{min(sizes)}–{max(sizes)}"


def statistic_texts(report: Report) -> tuple[str, ...]:
    """Numbers of the caption as sentences, with the paper's; in the paper's style the paper's alone."""
    return tuple(words("statistic", statistic, report.style, NO_NUMBER) for statistic in report.statistics)


def finding_texts(report: Report) -> tuple[str, ...]:
    """The paper's findings as sentences: whether they show here, and by how much; the last says what the words mean."""
    ps = ("" if finding.p_corrected is None else p_text(finding.p_corrected) for finding in report.findings)
    texts = [words("finding", finding, p, SIGNIFICANT) for finding, p in zip(report.findings, ps, strict=True)]
    return (*texts, words("verdicts", SIGNIFICANT)) if texts else ()


def legend(report: Report, paper_is: str) -> str:
    """How to read the table; `paper_is` says where the paper's numbers stand ("In brackets")."""
    return words("legend", report, paper_is, NOT_IN_PAPER, NO_NUMBER, report.target in paper_tables())


def words(name: str, *values: Any) -> str:
    """A sentence of `words.jinja`."""
    return str(getattr(_words(), name)(*values))


@cache
def _words() -> Any:
    return environment(Path(__file__).parent).get_template("words.jinja").module
