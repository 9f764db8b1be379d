"""Labels that every format has to escape, in all renderers; LaTeX is compiled and read back from its page."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tokenweight.latex import escape
from tokenweight.reports import delimited, latex, markdown
from tokenweight.reports.model import Note, Report
from tokenweight.reports.writing import styled, write_report

HOSTILE = 'a_b %c &d #e $f$ ~g ^h \\i {j} κ ≤ 1 > 0 < 2 | [k] *l* `m` "n" — ’o’ é Ħ 中😀\n=1+1 __p__ <q> \\\\ --r #'
FORMULA = "=1+1"


@pytest.fixture
def hostile(eventful: Report) -> Report:
    """Table 3 with texts that every format must escape, in all places that a user's text can reach."""
    rows = tuple(row.model_copy(update={"label": HOSTILE, "group": HOSTILE}) for row in eventful.rows)
    columns = tuple(column.model_copy(update={"label": HOSTILE, "group": HOSTILE}) for column in eventful.columns)
    notes = (*(Note(mark=note.mark, text=HOSTILE) for note in eventful.notes), Note(mark=None, text=f"- {HOSTILE}"))
    return styled(eventful, "both").model_copy(
        update={"title": HOSTILE, "rows": rows, "columns": columns, "notes": notes, "stub": (HOSTILE, FORMULA)}
    )


def flat(text: str) -> str:
    return " ".join(text.split())


def markdown_texts(text: str) -> list[str]:
    """Plain text of every cell, list item, heading and paragraph as a Markdown parser sees them."""
    texts = []
    for token in MarkdownIt("commonmark").enable("table").enable("strikethrough").parse(text):
        if token.type == "inline":
            children = token.children or []
            assert {child.type for child in children} <= {"text", "text_special", "strong_open", "strong_close"} | {
                "em_open",
                "em_close",
                "softbreak",
            }, token.content
            texts.append("".join(child.content for child in children))
    return texts


def test_markdown_shows_hostile_text_as_it_is(hostile: Report) -> None:
    texts = markdown_texts(markdown.render(hostile))
    rows, columns = len(hostile.rows), len(hostile.columns)
    assert sum(text == flat(HOSTILE) for text in texts) >= 2 * 2 * rows + 2  # labels twice, stub, general notes
    assert sum(text == flat(f"{HOSTILE} {HOSTILE}") for text in texts) == 3 * columns
    assert flat(f"- {HOSTILE}") in texts
    assert FORMULA in texts
    lines = markdown.render(hostile).splitlines()
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")}
    assert widths == {columns + 3}


def test_csv_has_one_line_a_cell_and_no_formulas(hostile: Report) -> None:
    keyed = hostile.model_copy(
        update={"rows": tuple(row.model_copy(update={"key": HOSTILE + FORMULA}) for row in hostile.rows)}
    )
    first = keyed.rows[0].model_copy(update={"key": FORMULA})
    keyed = keyed.model_copy(update={"rows": (first, *keyed.rows[1:])})
    lines = list(csv.DictReader(io.StringIO(delimited.render(keyed))))
    assert len(lines) == len(hostile.rows) * len(hostile.columns)
    assert lines[0]["row"] == f"'{FORMULA}"
    assert lines[-1]["row"] == flat(HOSTILE + FORMULA)
    assert {line["note"] for line in lines} >= {"", flat(HOSTILE)}
    assert all("\n" not in value for line in lines for value in line.values())


def test_json_keeps_hostile_text(hostile: Report) -> None:
    assert json.loads(hostile.model_dump_json())["rows"][0]["label"] == HOSTILE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a_b 5% &d #e $f ~ ^ \\ {j}\n1",
            r"a\_b 5\% \&d \#e \$f \textasciitilde{} \textasciicircum{} \textbackslash{} \{j\} 1",
        ),
        ("κ ≤ Λ Α ε", r"$\kappa$ $\leq$ $\Lambda$ A $\varepsilon$"),
        ("[x]*", "{[}x{]}{*}"),
        ("a--b ,, ''", "a-{}-b ,{}, '{}'"),
        ("e\N{COMBINING ACUTE ACCENT} ạ", r"é \d{a}"),
        ("Ħ 中😀 \u202e", "{[}U+0126{]} {[}U+4E2D U+1F600{]} {[}U+202E{]}"),
    ],
)
def test_latex_escapes_what_is_special_and_spells_what_it_lacks(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_macro_names_are_letters_unique_and_from_the_keys(eventful: Report) -> None:
    keys = ("a-b", "a_b", "A B", "κ 0.2", "中")
    rows = tuple(row.model_copy(update={"key": key}) for row, key in zip(eventful.rows, keys, strict=False))
    names = re.findall(
        r"\\newcommand\{\\(.*?)\}", latex.render_macros(styled(eventful.model_copy(update={"rows": rows}), "ours"))
    )
    assert len(names) == len(set(names)) == len(rows) * len(eventful.columns)
    assert all(re.fullmatch("Tw[A-Za-z]+", name) for name in names)
    assert names[0] == "TwTableThreeABMmlu"
    assert {"TwTableThreeABMmluAgain", "TwTableThreeZeroPointTwoRulerFourK"} <= set(names)


def test_a_macro_prints_what_the_table_prints(eventful: Report) -> None:
    text = latex.render_macros(styled(eventful, "both"))
    assert r"\newcommand{\TwTableThreeFrozenSparseMmlu}{62.50}" in text
    assert r"\newcommand{\TwPaperTableThreeFrozenSparseMmlu}{63.73}" in text
    assert r"\newcommand{\TwTableThreeUniformRulerTwoK}{---}" in text  # a unit is missing
    assert r"\newcommand{\TwTableThreeLcdeMmlu}{---}" in text
    assert r"\newcommand{\TwTableThreeNoTrainEightKRuler}{---}" in text  # empty in the paper


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="NOT CHECKED: pdflatex is missing, LaTeX was not compiled")
def test_latex_prints_hostile_text_and_macros_as_they_are(hostile: Report, tmp_path: Path) -> None:
    prose = r"Uniform reaches \TwTableThreeUniformMmlu{}, not \TwPaperTableThreeUniformMmlu{}."
    begin = "\\begin{document}\n"
    compiled(latex.render(hostile).replace(begin, f"{latex.render_macros(hostile)}{begin}{prose}\n"), tmp_path)
    if shutil.which("pdftotext") is None:
        pytest.skip("NOT CHECKED: pdftotext is missing, the page was not read")
    subprocess.run(["pdftotext", "-layout", "table.pdf"], cwd=tmp_path, check=True, timeout=600)
    text = flat((tmp_path / "table.txt").read_text(encoding="utf-8")).replace("˜", "~")
    pieces = (
        "a_b %c &d #e $f$ ~g",
        "{j} κ ≤ 1 > 0 < 2 |",
        "[k] *l*",
        '"n"',
        "é [U+0126] [U+4E2D U+1F600] =1+1",
        "--r #",
    )
    assert not [piece for piece in pieces if piece not in text]
    assert "Uniform reaches 43.75, not 63.44." in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="NOT CHECKED: pdflatex is missing, LaTeX was not compiled")
def test_all_tables_fit_a_paper_of_two_columns(every_target: list[Report], eventful: Report, tmp_path: Path) -> None:
    """As in a paper with the ACL's style: 11 pt on A4 in two columns, hyperref loaded; every style, every macro."""
    shown = []
    for report in (*every_target, eventful.model_copy(update={"target": "eventful"})):
        styles = ("ours", "both") if report.target == "figure-3" else ("ours", "paper", "both")
        shown += [styled(report, style) for style in styles]
    reports = "\n".join(latex.render(report) + r"\clearpage" for report in shown)
    defined = "".join(latex.render_macros(report) for report in shown if report.style == "both")
    compiled(TWO_COLUMNS % (defined, reports), tmp_path, "-draftmode")
    log = (tmp_path / "table.log").read_text(encoding="latin-1")
    assert "Float too large" not in log
    assert "Overfull" not in log


WIDTHS = r"""\renewcommand{\resizebox}[3]{\sbox0{#3}\typeout{WIDTH \the\wd0 AT \csname f@size\endcsname}\usebox0}
"""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="NOT CHECKED: pdflatex is missing, LaTeX was not compiled")
@pytest.mark.parametrize("layout", [("split",), ("split", "transpose"), ("no-spreads",), ("no-spreads", "transpose")])
def test_wide_tables_fit_two_columns_at_8_points(layout: tuple[str, ...], eventful: Report, tmp_path: Path) -> None:
    """A table of eight rows and eleven columns, each cell with a spread, and a mark; the width is LaTeX's own."""
    cell = eventful.cell("uniform", "mmlu").model_copy(update={"value": 46.71, "spread": 10.25, "marks": (1,)})
    rows = tuple(row.model_copy(update={"cells": (cell,) * len(row.cells)}) for row in eventful.rows)
    report = styled(eventful.model_copy(update={"rows": rows, "seeds": 5}), "ours")
    table = latex.render(report, layout)
    compiled(TWO_COLUMNS % (WIDTHS, table), tmp_path, "-draftmode")
    log = (tmp_path / "table.log").read_text(encoding="latin-1")
    found = [(float(width), float(size)) for width, size in re.findall(r"WIDTH ([\d.]+)pt ?AT ([\d.]+)", log)]
    assert len(found) > 1 if "split" in layout else len(found) == 1
    assert all(width <= 455 and size >= 8 for width, size in found), found
    assert sum(float(width) for width, _ in found) > 0.6 * 455 * (len(found) - 1)  # parts are not smaller than need be
    assert table.count("46.71") == len(report.cells)
    assert ("10.25" in table) == ("no-spreads" not in layout)


def test_notes_on_the_run_are_no_part_of_our_float(eventful: Report, tmp_path: Path) -> None:
    repair, numbered = "is made by running tokenweight reproduce", "units partial"
    paths = write_report(eventful, tmp_path, ("tex",), "ours")
    float_, notes = (paths[name].read_text(encoding="utf-8") for name in ("tex", "notes"))
    assert (repair in float_, numbered in float_, repair in notes, numbered in notes) == (False, True, True, False)
    below = write_report(eventful, tmp_path / "below", ("tex",), "ours", ("notes-below",))
    assert repair in below["tex"].read_text(encoding="utf-8")
    assert set(below) == {"tex", "macros"}
    if shutil.which("pdflatex"):
        compiled(TWO_COLUMNS % ("", notes), tmp_path)


def test_negative_numbers_have_a_minus_and_no_other_hyphen_does() -> None:
    assert latex.tex("mean -0.65 [-1.68, +0.38], p 1e-5, table-3, 2-3, --seeds -1, -.5, -") == (
        r"mean \ensuremath{-}0.65 {[}\ensuremath{-}1.68, +0.38{]}, p 1e-5, table-3, 2-3, -{}-seeds \ensuremath{-}1,"
        r" \ensuremath{-}.5, -"
    )


TWO_COLUMNS = r"""\documentclass[11pt,a4paper,twocolumn]{article}
\usepackage[margin=25mm,columnsep=6mm]{geometry}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{booktabs,graphicx,hyperref}
%s\begin{document}
%s
\end{document}
"""


def compiled(document: str, directory: Path, *options: str) -> None:
    """Run pdflatex in a directory; the test fails where it stops."""
    (directory / "table.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", *options, "table.tex"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, errors="replace", timeout=600)
    assert done.returncode == 0, done.stdout[-2000:]
