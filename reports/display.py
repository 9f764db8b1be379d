"""What all renderers print alike: numbers as text, the two dashes, n of a column."""

from __future__ import annotations

from tokenweight.reports.model import Cell, FindingResult, Report, ReportColumn, Statistic, Style
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
    columns = " (of a difference column: to the row's own reference)" if any(c.signed for c in report.columns) else ""
    return (
        f"Difference to {report.baseline}{columns}, its 95 % interval by paired bootstrap, and p of a paired test. "
        f"{test_legend(report)}"
    )


def test_legend(report: Report) -> str:
    """Which tests were made, on what, and how p is corrected."""
    differences = [cell.difference for cell in report.cells if cell.difference]
    tests = {difference.test for difference in differences if difference.test}
    flips = "a randomization test that flips the signs of samples' differences"
    mcnemar = f"McNemar's exact test where a cell is one accuracy of 0/1 scores, else {flips}"
    names = mcnemar if any("McNemar" in test for test in tests) else flips
    over_seeds = (
        " Over several seeds each sample's scores are averaged, and of this test's p and that of a t-test of the seeds' "
        "differences the larger counts; intervals are over samples alone."
        if any("over seeds" in test for test in tests)
        else ""
    )
    reasons = sorted({difference.reason for difference in differences if difference.reason})
    return (
        f"Tests are two-sided, on the same samples: {names}; p is corrected for the table's {report.comparisons} tests "
        f"(Holm).{over_seeds}" + "".join(f" {reason[0].upper()}{reason[1:]}." for reason in reasons)
    )


def interval_legend() -> str:
    """What is resampled, and where there is no interval."""
    return (
        "Bootstrap over samples: within each task for a mean over tasks (the tasks themselves are fixed), over all samples "
        "for MMLU, BBH and perplexity. No interval where a task has a single sample, or where all samples of each task "
        "have the same score: resampling cannot show how uncertain such a value is."
    )


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
    return tuple(_statistic(statistic, report.style) for statistic in report.statistics)


def _statistic(statistic: Statistic, style: Style) -> str:
    if style == "paper":
        return f"{statistic.name}: {statistic.paper}."
    value = NO_NUMBER if statistic.value is None else f"{statistic.value:.4f}"
    paper = f"; the paper: {statistic.paper}" if statistic.paper else ""
    return f"{statistic.name}: {value} ({statistic.n} rows{paper})."


def finding_texts(report: Report) -> tuple[str, ...]:
    """The paper's findings as sentences: whether they show here, and by how much; the last says what the words mean."""
    if not report.findings:
        return ()
    meaning = (
        f"Appears: the order holds with every seed, and p (paired, corrected for all findings here) is below {SIGNIFICANT}. "
        f"Points that way: it holds with every seed, and p is not. Intervals are of 95 % over samples."
    )
    return (*(_finding_text(finding) for finding in report.findings), meaning)


def _finding_text(finding: FindingResult) -> str:
    if finding.difference is None:
        return f"{finding.claim} ({finding.place}). Not measured with every seed: {finding.compared}."
    decimals = finding.decimals
    interval = ""
    if finding.ci_low is not None and finding.ci_high is not None:
        interval = f" [{finding.ci_low:+.{decimals}f}, {finding.ci_high:+.{decimals}f}]"
    p = f", p {p_text(finding.p_corrected)}" if finding.p_corrected is not None else ""
    return (
        f"{finding.claim} ({finding.place}). {_verdict(finding)} ({finding.seeds_holding} of {finding.seeds} seeds{p}): "
        f"{finding.compared}, mean difference {finding.difference:+.{decimals}f}{interval}."
    )


def _verdict(finding: FindingResult) -> str:
    if finding.seeds_holding == 0:
        return "Does not appear"
    if finding.seeds_holding < finding.seeds:
        return "Undecided"
    significant = finding.p_corrected is not None and finding.p_corrected < SIGNIFICANT
    return "Appears" if significant or not finding.is_tested else "Points that way, not significant"


def legend(report: Report, paper_is: str) -> str:
    """How to read the table; `paper_is` says where the paper's numbers stand ("In brackets")."""
    empty = f"{NOT_IN_PAPER}: empty in the paper."
    if report.style == "paper":
        emphasis = f"{report.emphasis}, as printed. " if report.emphasis else ""
        return f"{report.paper_place} of the paper as printed there; nothing in it was measured here. {emphasis}{empty}"
    emphasis = f"{report.emphasis}, by our values as printed. " if report.emphasis else ""
    ours_alone = f"{emphasis}{NO_NUMBER}: no number, the note says why. n: samples behind a value."
    if not report.paper_place:
        return f"The paper has no such table. {ours_alone}"
    if report.style == "ours":
        return f"{empty} {ours_alone}"
    if all(cell.paper is None for cell in report.cells):
        printed = report.target in paper_tables()
        return f"The paper prints no numbers of {report.paper_place}{' for these columns' if printed else ''}. {ours_alone}"
    beside = [(c.label, str(c.paper_label)) for c in report.columns if c.paper_label and c.has_paper_label]
    ours, theirs = (", ".join(dict.fromkeys(labels)) for labels in zip(*beside, strict=True)) if beside else ("", "")
    scaled = f"Our {ours} stand beside its {theirs}. " if beside else ""
    return f"{paper_is}: {report.paper_place} of the paper, then ours less that. {scaled}{empty} {ours_alone}"
