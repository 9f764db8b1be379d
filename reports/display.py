"""What all renderers print alike: numbers as text, the two dashes, n of a column, emphasis, the sentences of words.jinja."""

import math
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tokenweight.latex import environment
from tokenweight.pipeline.experiment import Emphasis
from tokenweight.reports.model import Cell, CellDifference, FindingResult, Mark, Report, ReportColumn
from tokenweight.reports.paper.numbers import paper_tables

NOT_IN_PAPER = "-"
NO_NUMBER = "—"
SIGNIFICANT = 0.05
_LEAST_P = 0.001  # smaller ones are printed as "<0.001"


def value_text(cell: Cell, column: ReportColumn) -> str:
    """Our value as printed, " ± 0.12" behind it over several seeds; without one the cell's dash."""
    if cell.value is None:
        return _dash(cell)
    return number_text(cell.value, column) + ("" if cell.spread is None else f" ± {cell.spread:.{column.decimals}f}")


def seed_texts(cell: Cell, column: ReportColumn) -> list[str]:
    return [NO_NUMBER if value is None else number_text(value, column) for value in cell.by_seed]


def paper_beside(cell: Cell) -> str:
    """The paper's number as printed ("<0.01" is one), "" where it has no such cell or leaves it empty."""
    return cell.paper.printed if cell.paper and cell.paper.printed != NOT_IN_PAPER else ""


def less_paper_text(cell: Cell, column: ReportColumn) -> str:
    """Ours less the paper's, with its sign; "" where the paper has no number, a dash where we have none."""
    if cell.paper is None or cell.paper.value is None:
        return ""
    return NO_NUMBER if cell.less_paper is None else number_text(cell.less_paper, column, signed=True)


def number_text(value: float, column: ReportColumn, *, signed: bool = False, decimals: int | None = None) -> str:
    """A number at the column's precision, or another; differences carry their sign, and zero has none of its own."""
    text = f"{value:{'+' if signed or column.signed else ''}.{column.decimals if decimals is None else decimals}f}"
    return text.lstrip("+-") if float(text) == 0 else text


def decimals_of(decimals: int, value: float, *bounds: float | None) -> int:
    """The decimals of a difference and its interval: `decimals`, and more where it would be printed as a zero that it is not.

    That is where all of it would be zero, or the value alone while its interval has no zero: then as many as show two
    digits of the greatest of them.
    """
    numbers = [value, *(bound for bound in bounds if bound is not None)]
    greatest = max(map(abs, numbers))
    beside_zero = min(numbers) > 0 or max(numbers) < 0
    if greatest and not round(value, decimals) and (beside_zero or not round(greatest, decimals)):
        return max(decimals, 1 - math.floor(math.log10(greatest)))
    return decimals


def interval_text(cell: Cell, column: ReportColumn) -> str:
    """ "[40.10, 50.20]", or the dash of the cell where there is none."""
    return _bounds(cell, column, signed=False) or _dash(cell)


def difference_text(cell: Cell, column: ReportColumn) -> str:
    """ "+1.20 [+0.30, +2.10], p 0.012" with p corrected; a dash without a baseline's value to compare with."""
    difference = cell.difference
    if difference is None or difference.value is None:
        return _dash(cell)
    decimals = decimals_of(column.decimals, difference.value, difference.ci_low, difference.ci_high)
    text = number_text(difference.value, column, signed=True, decimals=decimals)
    if difference.p_corrected is None:
        return f"{text} (not tested)"
    return f"{' '.join(filter(None, (text, _bounds(difference, column, signed=True, decimals=decimals))))}, p {p_pair(difference)}"


def _bounds(of: Cell | CellDifference, column: ReportColumn, *, signed: bool, decimals: int | None = None) -> str:
    if of.ci_low is None or of.ci_high is None:
        return ""
    return (
        f"[{', '.join(number_text(end, column, signed=signed, decimals=decimals) for end in (of.ci_low, of.ci_high))}]"
    )


def _dash(cell: Cell) -> str:
    """`-` where the paper has no number, `—` where a note says why there is none."""
    return NOT_IN_PAPER if cell.status == "not_in_paper" else NO_NUMBER


def p_pair(of: CellDifference | FindingResult) -> str:
    """ "0.012 (0.003)": p corrected, and alone where that is another; three decimals, "<0.001" below."""
    ps = (of.p_corrected or 0.0, of.p or 0.0)
    corrected, alone = (f"<{_LEAST_P}" if p < _LEAST_P else f"{p:.3f}" for p in ps)
    return corrected if corrected == alone else f"{corrected} ({alone})"


def is_significant(cell: Cell) -> bool:
    """Whether the cell's difference to its baseline holds after correction."""
    p = cell.difference.p_corrected if cell.difference else None
    return p is not None and p < SIGNIFICANT


def n_text(cell: Cell) -> str:
    """ "n 160", "n 12 of 160" where samples lack, "" where the paper has no number."""
    if cell.status == "not_in_paper":
        return ""
    return f"n {cell.n}" if cell.n_expected in (None, cell.n) else f"n {cell.n} of {cell.n_expected}"


def column_n_text(report: Report, index: int) -> str:
    """Samples behind a column's cells: one number where all have as many, else the range."""
    sizes = [row.cells[index].n for row in report.rows if row.cells[index].status != "not_in_paper"]
    return "–".join(map(str, dict.fromkeys((min(sizes), max(sizes))))) if sizes else ""


def groups_of(names: Iterable[str]) -> list[tuple[str, int]]:
    """(name, columns) of the headings above the headings, whose names are those of each column."""
    return [(name, len(list(members))) for name, members in groupby(names)]


def emphasise(
    rule: Emphasis, paper_column: str | None, values: Mapping[str, float | None], decimals: int
) -> tuple[dict[str, tuple[Mark, ...]], tuple[str, ...]]:
    """Bold, italic and underline of one column by row, and the rows for want of whose value it is not judged.

    By the paper's rules, from values as printed: ties share the mark. `values` are the competing rows in order (cells that
    the table leaves empty are not in it), None where a value is missing. The italics of a value that the caption sets apart
    say that it is not considered: they compare nothing and stay.
    """
    apart = {row for row in values if (row, paper_column) in rule.set_apart}
    marks: dict[str, tuple[Mark, ...]] = {row: ("italic",) for row in apart if values[row] is not None}
    printed = {row: round(value, decimals) for row, value in values.items() if value is not None and row not in apart}
    missing = tuple(row for row, value in values.items() if value is None and row not in apart)
    if not printed or not (rule.bold or rule.italic or rule.underline_above_row):
        return marks, ()
    if missing:
        return marks, missing
    best = {"largest": max(printed.values()), "smallest": min(printed.values())}
    bar = printed.get(rule.underline_above_row or "", math.inf)
    for row, value in printed.items():
        holds: dict[Mark, bool] = {
            "bold": rule.bold is not None and value == best[rule.bold],
            "italic": rule.italic is not None and value == best[rule.italic],
            "underline": value > bar,
        }
        if any(holds.values()):
            marks[row] = tuple(mark for mark, held in holds.items() if held)
    return marks, ()


def statistic_texts(report: Report) -> tuple[str, ...]:
    """Numbers of the caption as sentences, with the paper's; in the paper's style the paper's alone."""
    return tuple(words("statistic", statistic, report.style) for statistic in report.statistics)


def finding_texts(report: Report) -> tuple[str, ...]:
    """The paper's findings as sentences: whether they show here, and by how much; the last says what the words mean."""
    texts = tuple(words("finding", finding) for finding in report.findings)
    return (*texts, words("verdicts")) if texts else ()


def words(name: str, *values: Any) -> str:
    """A sentence of words.jinja; plain text, which a page escapes (of a macro itself it would not)."""
    return str(getattr(_words(), name)(*values))


@cache
def _words() -> Any:
    templates = environment(Path(__file__).parent)
    templates.globals |= {"NOT_IN_PAPER": NOT_IN_PAPER, "NO_NUMBER": NO_NUMBER, "SIGNIFICANT": SIGNIFICANT}
    templates.globals |= {"p_pair": p_pair, "paper_tables": paper_tables, "decimals_of": decimals_of}
    return templates.get_template("words.jinja").module
