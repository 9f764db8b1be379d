"""Renderers: golden files, hostile labels, LaTeX that compiles.

Rewrite the golden files with UPDATE_GOLDEN=1 and read the difference.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from reports_fake_store import RULER_TASKS, FakeStore, all_units

from tokenweight.errors import UserError
from tokenweight.reports import delimited, latex, markdown
from tokenweight.reports.build import build_report
from tokenweight.reports.manifest import Manifest
from tokenweight.reports.model import Note, Report
from tokenweight.reports.targets import TARGETS
from tokenweight.reports.writing import write_report

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = 'a_b %c &d #e $f$ ~g ^h \\i {j} κ ≤ 1 > 0 < 2 | [k] *l* `m` "n" — ’o’ é\n=1+1 __p__ <q> \\\\ --r'
FORMULA = "=1+1"


@pytest.fixture
def eventful(store: FakeStore) -> Report:
    """Table 3 with a missing unit, a partial one, a stale one and a flag, besides whole cells."""

    def unit_scores(row: str, benchmark: str) -> list[float]:
        return [1.0, 0.0, 0.5, 1.0 if row == "frozen-sparse" else 0.25]

    for row in ("no-train-8k", "no-train-32k", "uniform", "frozen-sparse"):
        for benchmark, task, length in all_units(short_context=row == "no-train-8k"):
            unit = "/".join(filter(None, (benchmark, task, str(length or ""))))
            scores: list[float] | None = unit_scores(row, benchmark)
            if (row, unit) == ("uniform", f"ruler/{RULER_TASKS[2]}/2048"):
                scores = None
            if (row, unit) == ("frozen-sparse", f"ruler/{RULER_TASKS[5]}/3072"):
                scores = [1.0]
            stale = {"fingerprint": "0" * 64} if (row, unit) == ("no-train-32k", "longbench/lcc") else None
            flags = ["all outputs empty"] if (row, unit) == ("uniform", "mmlu/anatomy") else None
            tokens = [900, 1024, 1025, 5000] if benchmark == "longbench" else None
            store.add(row, unit, scores, n_expected=4, tokens=tokens, record=stale, flags=flags)
    return build_report(store.manifest(divergences=("This run has four rows only.",)), store.root)


@pytest.fixture
def hostile(eventful: Report) -> Report:
    """The same with texts that every format must escape."""
    rows = tuple(row.model_copy(update={"label": HOSTILE, "group": HOSTILE}) for row in eventful.rows)
    columns = tuple(column.model_copy(update={"label": HOSTILE, "group": HOSTILE}) for column in eventful.columns)
    notes = (*(Note(mark=note.mark, text=HOSTILE) for note in eventful.notes), Note(mark=None, text=f"- {HOSTILE}"))
    return eventful.model_copy(
        update={"title": HOSTILE, "rows": rows, "columns": columns, "notes": notes, "stub": (HOSTILE, FORMULA)}
    )


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} changed; UPDATE_GOLDEN=1 rewrites it"


@pytest.mark.parametrize("suffix", ["md", "tex", "csv", "json"])
def test_golden_files(eventful: Report, tmp_path: Path, suffix: str) -> None:
    paths = write_report(eventful, tmp_path)
    check_golden(f"table-3.{suffix}", paths[suffix].read_text(encoding="utf-8"))


def test_files_are_named_by_target_and_whole(eventful: Report, tmp_path: Path) -> None:
    paths = write_report(eventful, tmp_path / "new" / "results")
    assert sorted(path.name for path in (tmp_path / "new" / "results").iterdir()) == [
        "table-3.csv",
        "table-3.json",
        "table-3.md",
        "table-3.tex",
    ]
    assert Report.model_validate_json(paths["json"].read_text()) == eventful
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_report(eventful, tmp_path / "file")


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


def test_latex_escapes_every_special_character() -> None:
    assert latex.escape("a_b 5% &d #e $f ~ ^ \\ {j} κ ≤\n1") == (
        r"a\_b 5\% \&d \#e \$f \textasciitilde{} \textasciicircum{} \textbackslash{} \{j\} $\kappa$ $\leq$ 1"
    )
    assert latex.escape("[x]* 中") == "{[}x{]}{*} {[}U+4E2D{]}"


@pytest.fixture
def every_target(full_store: FakeStore) -> list[Report]:
    """All targets, from the units that Table 3's rows have."""
    values = full_store.manifest().model_dump()
    reports = []
    for target in (target for target in TARGETS.values() if target.paper_place):
        recipes = {row["recipe"]: row for row in values["rows"]}
        rows = [recipes[row.recipe] | {"row": row.key} for row in target.rows if row.recipe in recipes]
        reports.append(build_report(Manifest(**(values | {"target": target.name, "rows": rows})), full_store.root))
    return reports


def test_every_target_renders_in_every_format(every_target: list[Report], tmp_path: Path) -> None:
    for report in every_target:
        paths = write_report(report, tmp_path)
        assert all(path.stat().st_size for path in paths.values())
        printed = {cell.paper.printed for row in report.rows for cell in row.cells if cell.paper and cell.paper.value}
        # Of Figure 3's curve the paper prints no number; Table 1's columns are known from its records alone.
        assert bool(printed) == (report.target not in ("figure-3", "table-1"))
        for suffix in ("md", "tex", "csv"):
            text = paths[suffix].read_text(encoding="utf-8")
            assert not [number for number in printed if number not in text]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="NOT CHECKED: pdflatex is missing, LaTeX was not compiled")
def test_latex_of_every_target_compiles(every_target: list[Report], eventful: Report, tmp_path: Path) -> None:
    pages = compiled(latex.standalone(eventful, *every_target), tmp_path)
    assert f"({len(every_target) + 1} pages" in pages


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="NOT CHECKED: pdflatex is missing, LaTeX was not compiled")
def test_latex_prints_hostile_text_as_it_is(hostile: Report, tmp_path: Path) -> None:
    compiled(latex.standalone(hostile), tmp_path)
    if shutil.which("pdftotext") is None:
        pytest.skip("NOT CHECKED: pdftotext is missing, the page was not read")
    subprocess.run(["pdftotext", "-layout", "table.pdf"], cwd=tmp_path, check=True, timeout=60)
    text = flat((tmp_path / "table.txt").read_text(encoding="utf-8")).replace("˜", "~")
    for piece in ("a_b %c &d #e $f$ ~g", "{j} κ ≤ 1 > 0 < 2 |", "[k] *l*", "é =1+1", "--r"):
        assert piece in text, piece


def compiled(document: str, directory: Path) -> str:
    """Run pdflatex in a directory; returns what it printed."""
    (directory / "table.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


def test_reports_import_nothing_that_trains() -> None:
    code = (
        "import sys, tokenweight.reports.build, tokenweight.reports.writing\n"
        "bad = {'torch', 'transformers', 'datasets', 'lm_eval', 'prefect'} & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(bad)}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
