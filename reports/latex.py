"""A report as LaTeX: booktabs, the paper's column groups, label columns and rules (table.tex.jinja), and macros for prose.

A difference to another row is in brackets behind its value, as in Tables 5 and 11. Ours and the paper's stand one
above the other, then ours less the paper's. `\\TwTableThreeUniformRuler` prints what the table prints: a name is `\\Tw` or,
for what the paper prints, `\\TwPaper`, then target, row and column by their keys: words begin with a capital, digits are
spelled one by one (`ruler-32k`: `RulerThreeTwoK`), a point is `Point`.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from tokenweight.latex import CODE_POINTS, environment, escape
from tokenweight.reports import display
from tokenweight.reports.model import Cell, Mark, Report, ReportColumn, ReportRow

LAYOUTS = ("notes-below", "transpose", "no-spreads", "split")  # how a table can be set: docs/reports.md
_SPELLED = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
_CODE_POINTS_MEAN = "{[}U+\\ldots{]}: characters that LaTeX's T1 fonts lack, as their Unicode code points."
_COMMANDS: dict[Mark, str] = {"bold": "textbf", "italic": "textit", "underline": "underline"}
_MINUS = re.compile(r"(?<![\w.)\]-])-(?=\.?\d)")
_UNSEEN = re.compile(r"\\(textbf|textit|underline|textsuperscript|scriptsize|ensuremath)|[{}$]")
_SYMBOL = re.compile(r"\\[A-Za-z]+ ?")
# Both columns of the ACL's style; a character of 8 pt, mostly a digit; twice \tabcolsep.
_ROOM_POINTS, _CHARACTER_POINTS, _GAP_POINTS = 455.0, 4.5, 6.0

Texts = Callable[[Cell, ReportColumn], str]
Heads = list[tuple[str, str]]  # group and label
Line = tuple[tuple[str, str], list[str], str | None]  # group and label, cells, the rule below it ("n": it has sizes)


@dataclass(frozen=True)
class Block:
    """Lines of the table below one heading; each has a label and a group, its cells, and the rule below it ("n": sizes)."""

    heading: str
    heads: Heads
    lines: list[Line]

    def turned(self) -> "Block":
        """With its columns as lines, without rules."""
        lines: list[Line] = [(head, [line[1][i] for line in self.lines], None) for i, head in enumerate(self.heads)]
        return Block(self.heading, [label for label, _, _ in self.lines], lines)


def render(report: Report, layout: Collection[str] = ()) -> str:
    """The table with its notes below it: a document by itself, or to `\\input` in one with booktabs and T1 fonts.

    `layout`: some of LAYOUTS. Of our numbers alone the notes on the run are no part of the float (:func:`render_notes`).
    """
    if "transpose" in layout:
        report = report.model_copy(update={"emphasis": report.emphasis.replace(" of a column", " of a row")})
    blocks = _blocks(report, layout)
    heads, labels = blocks[0].heads, [label for block in blocks for label, _, _ in block.lines]
    room = _ROOM_POINTS - sum(_points(label[side] for label in labels) for side in (0, 1))
    widths = [
        _points([head[1], *(cells[index] for block in blocks for _, cells, _ in block.lines)])
        for index, head in enumerate(heads)
    ]
    parts = list(_parts(heads, widths, room)) if "split" in layout else [range(len(heads))]
    return _rendered(
        "table.tex.jinja",
        report,
        blocks=blocks,
        parts=parts,
        stub=1 + any(group for group, _ in labels),
        stub_labels=["", *("" if "transpose" in layout else label for label in report.stub)][-2:],
        is_wide=sum(widths) > room / 2,
        is_too_wide=any(sum(widths[index] for index in part) > room for part in parts),
        has_differences=any(column.signed for column in report.columns),
        notes_below=report.style != "ours" or "notes-below" in layout,
    )


def render_notes(report: Report) -> str:
    """The findings and the notes on the whole run, to `\\input` where a float has no room for them."""
    return _rendered("notes.tex.jinja", report)


def _rendered(name: str, report: Report, **given: Any) -> str:
    templates = environment(Path(__file__).parent)
    # Of a label letters, digits and hyphens alone: it needs no escape in LaTeX.
    templates.filters |= {"tex": tex, "label": partial(re.sub, r"[^A-Za-z0-9-]+", "-")}
    template = templates.get_template(name)
    sentences = display.statistic_texts(report) + display.finding_texts(report)
    given |= {"report": report, "display": display, "sentences": sentences}
    text = template.render(given, meaning="")
    return template.render(given, meaning=_CODE_POINTS_MEAN) if CODE_POINTS in text else text


def _blocks(report: Report, layout: Collection[str]) -> list[Block]:
    """Ours, or the paper's; or ours, below it the paper's and ours less that."""
    is_turned = "transpose" in layout
    differences = {column.difference_of: index for index, column in enumerate(report.columns)}
    shown = {column.key for column in report.columns}
    columns = [place for place in enumerate(report.columns) if place[1].difference_of not in shown]
    beside = report.style == "both" and report.has_paper

    def block(
        heading: str, rows: Sequence[ReportRow], text: Texts, of_paper: bool = False, sizes: bool = False
    ) -> Block:
        lines: list[Line] = []
        for row in rows:
            cells = []
            for index, column in columns:
                value, less = text(row.cells[index], column), ""
                if (other := differences.get(column.key)) is not None:
                    less = text(row.cells[other], report.columns[other])
                # Two equal dashes say no more than one.
                cells.append(value if less in ("", "-", value) else rf"{value} {{\scriptsize({less})}}")
            label = (row.group if len(report.stub) > 1 else "", row.paper_label if of_paper else row.label)
            lines.append((label, cells, row.rule_below))
        if sizes or (is_turned and beside):  # turned, the blocks have their columns in common
            texts = [tex(display.column_n_text(report, index)) if sizes else "" for index, _ in columns]
            lines.append((("", "n"), texts, "n"))
        # The stub may name the only group.
        groups = ["" if column.group in report.stub else column.group for _, column in columns]
        labels = [(column.paper_label or "") if of_paper else column.label for _, column in columns]
        found = Block(heading, list(zip(groups, labels, strict=True)), lines)
        return found.turned() if is_turned else found

    def ours(cell: Cell, column: ReportColumn) -> str:
        value = display.value_text(cell.model_copy(update={"spread": None}) if "no-spreads" in layout else cell, column)
        marks = [*map(str, cell.marks), *(["$\\dagger$"] if display.is_significant(cell) else [])]
        return _emphasised(tex(value), cell.emphasis) + (rf"\textsuperscript{{{','.join(marks)}}}" if marks else "")

    def papers(cell: Cell, _: ReportColumn) -> str:
        return _emphasised(tex(cell.paper.printed), cell.paper.emphasis) if cell.paper else ""

    if report.style == "paper":
        return [block("", report.rows, papers)]
    blocks = [block(f"This run, {report.scale} scale" if beside else "", report.rows, ours, sizes=True)]
    if beside:
        rows = report.rows if is_turned else report.rows_of_paper
        blocks.append(block(f"The paper, {report.paper_place}", rows, papers, of_paper=True))
        if any(cell.less_paper is not None for cell in report.cells):
            less = block("This run less the paper", rows, lambda *place: tex(display.less_paper_text(*place)))
            blocks.append(less)
    return blocks


def _emphasised(text: str, marks: Iterable[Mark]) -> str:
    for mark in marks:
        text = rf"\{_COMMANDS[mark]}{{{text}}}"
    return text


def _points(texts: Iterable[str]) -> float:
    """About how wide a column of such texts prints, in points: 0 where all are empty."""
    longest = max(len(_SYMBOL.sub("x", _UNSEEN.sub("", text))) for text in texts)
    return longest * _CHARACTER_POINTS + _GAP_POINTS if longest else 0.0


def _parts(heads: Heads, widths: Sequence[float], room: float) -> Iterator[range]:
    """Columns that stand side by side, so many as there is room for: whole groups where one fits."""
    first, used = 0, 0.0
    groups = [list(run) for _, run in groupby(range(len(heads)), key=lambda index: heads[index][0])]
    for run in groups:
        whole = sum(widths[index] for index in run)
        for index in run:
            needed = whole if index == run[0] and whole <= room else widths[index]
            if used + needed > room and index > first:
                yield range(first, index)
                first, used = index, 0.0
            used += widths[index]
    yield range(first, len(heads))


def tex(text: str) -> str:
    """Text in LaTeX, negative numbers with a minus and not a hyphen."""
    return escape(_MINUS.sub("\N{MINUS SIGN}", text))


def render_macros(report: Report) -> str:
    """Each number as a macro (an em dash without a complete value), by the report's style: a file to `\\input` in the preamble."""
    what = "as the paper prints them" if report.style == "paper" else f"{report.scale} scale"
    lines = [f"% Numbers of {escape(report.target)}, {what}. In prose: \\Name{{}}. Needs \\usepackage[T1]{{fontenc}}."]
    macros: dict[str, str] = {}
    printed: set[tuple[str, str]] = set()

    def define(text: str, *keys: str) -> None:
        name = _macro_name(*keys)
        while name in macros:  # another cell has it
            name += "Again"
        macros[name] = tex(text)

    for row, column, cell in report.places:
        if report.style != "paper":
            text = display.NO_NUMBER if cell.value is None else display.value_text(cell, column)
            define(text, report.target, row.key, column.key)
        place = (row.key, column.paper_column or "")
        if cell.paper and cell.paper.value is not None and place not in printed:  # once, beside several setups
            printed.add(place)
            define(cell.paper.printed, "paper", report.target, *place)
    lines += (rf"\newcommand{{\{name}}}{{{text}}}" for name, text in macros.items())
    return "\n".join(lines) + "\n"


def _macro_name(*keys: str) -> str:
    """`Tw` and the keys of target, row and column, letters only: ("table-3", "uniform") is TwTableThreeUniform."""
    flat = unicodedata.normalize("NFKD", " ".join(keys))
    spelled = re.sub(r"(?<=\d)\.(?=\d)", " point ", flat)
    spelled = re.sub("[0-9]", lambda digit: f" {_SPELLED[int(digit[0])]} ", spelled)
    words = re.findall(r"[A-Za-z]+", spelled)
    return "Tw" + "".join(word[0].upper() + word[1:] for word in words)
