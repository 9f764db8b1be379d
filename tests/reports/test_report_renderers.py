"""Renderers: golden files, every target in every format. Rewrite the golden files with UPDATE_GOLDEN=1 and read the difference."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tokenweight.errors import UserError
from tokenweight.reports import latex
from tokenweight.reports.files import FORMATS, chosen_formats
from tokenweight.reports.model import Cell, CellDifference, Report, ReportColumn, ReportRow
from tokenweight.reports.targets import get_target
from tokenweight.reports.writing import styled, write_report

GOLDEN = Path(__file__).parent / "golden"
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reports.md"


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} changed; UPDATE_GOLDEN=1 rewrites it"


def test_golden_files(eventful: Report, tmp_path: Path) -> None:
    for path in write_report(eventful, tmp_path).values():
        check_golden(path.name, path.read_text(encoding="utf-8"))


def test_files_are_named_by_target_and_whole(eventful: Report, tmp_path: Path) -> None:
    paths = write_report(eventful, tmp_path / "new" / "results")
    assert sorted(path.name for path in (tmp_path / "new" / "results").iterdir()) == [
        "table-3-macros.tex",
        "table-3.csv",
        "table-3.json",
        "table-3.md",
        "table-3.tex",
    ]
    assert Report.model_validate_json(paths["json"].read_text()) == styled(eventful, "both")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_report(eventful, tmp_path / "file")


@pytest.fixture(scope="session")
def table_5(every_target: list[Report]) -> Report:
    return next(report for report in every_target if report.target == "table-5")


@pytest.mark.parametrize("style", ["ours", "paper", "both"])
def test_golden_files_of_styles(table_5: Report, tmp_path: Path, style: str) -> None:
    paths = write_report(table_5, tmp_path, ("md", "tex"), style)
    for name in ("md", "tex", "macros"):
        end = "-macros.tex" if name == "macros" else f".{name}"
        check_golden(f"table-5-{style}{end}", paths[name].read_text(encoding="utf-8"))


def test_every_target_renders_in_every_format(every_target: list[Report], tmp_path: Path) -> None:
    for report in every_target:
        paths = write_report(report, tmp_path)
        assert all(path.stat().st_size for path in paths.values())
        printed = {cell.paper.printed for row in report.rows for cell in row.cells if cell.paper and cell.paper.value}
        assert bool(printed) == (report.target != "figure-3")  # a curve of which the paper prints no number
        for name in ("md", "tex", "csv"):
            text = (
                paths[name].read_text(encoding="utf-8").replace(r"\ensuremath{-}", "-").replace(r"\ensuremath{+}", "+")
            )
            assert not [number for number in printed if number not in text]


@pytest.mark.parametrize("style", ["ours", "paper", "both"])
def test_a_table_of_every_style_can_be_turned(style: Any, eventful: Report) -> None:
    """In `both` the sizes are a column of ours, which the paper's block leaves empty."""
    table = latex.render(styled(eventful, style), ("transpose",))
    lines = [line for line in table.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert len({line.count(" & ") for line in lines}) == 1


def test_only_complete_cells_stand_out_or_differ_from_the_paper(every_target: list[Report], eventful: Report) -> None:
    cells = [cell for report in (*every_target, eventful) for row in styled(report, "both").rows for cell in row.cells]
    assert any(cell.emphasis for cell in cells)
    assert {cell.status for cell in cells if cell.emphasis or cell.less_paper is not None} == {"complete"}


def test_the_papers_style_is_the_papers_table(every_target: list[Report]) -> None:
    for report in every_target:
        if report.target == "figure-3":
            with pytest.raises(UserError, match="--style ours"):
                styled(report, "paper")
            continue
        shown = styled(report, "paper")
        cells = [cell for row in shown.rows for cell in row.cells]
        assert {(cell.status, cell.value, cell.emphasis, cell.addresses) for cell in cells} == {
            ("left_out", None, (), ())
        }
        lengths = get_target(report.target).paper_lengths_tokens
        labels = " ".join(row.label for row in shown.rows) + " ".join(column.label for column in shown.columns)
        assert "1k" not in labels.replace("11k", "") or 1024 in lengths
        assert [row.key for row in shown.rows] == [row.key for row in report.rows]


def test_ours_holds_nothing_of_the_papers(eventful: Report, tmp_path: Path) -> None:
    for path in write_report(eventful, tmp_path, style="ours").values():
        assert "65.39" not in path.read_text(encoding="utf-8"), path.name  # No-train 8k, MMLU
    rows = csv.DictReader(io.StringIO((tmp_path / "table-3.csv").read_text(encoding="utf-8")))
    assert {(row["paper_value"], row["less_paper"]) for row in rows} == {("", "")}


def test_numbers_of_a_cell_add_up_as_printed(eventful: Report) -> None:
    cell = styled(eventful, "both").cell("frozen-sparse", "mmlu")
    assert cell.value is not None
    assert cell.paper is not None
    assert cell.less_paper == pytest.approx(round(cell.value, 2) - (cell.paper.value or 0))


def test_chosen_formats_are_written_and_no_others(eventful: Report, tmp_path: Path) -> None:
    assert chosen_formats(None) == tuple(FORMATS)
    write_report(eventful, tmp_path, chosen_formats("csv, md"))
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.is_file()) == [".csv", ".md"]
    for text, unknown in (("pdf", "pdf"), ("md,doc", "doc")):
        with pytest.raises(
            UserError, match=f"^--formats {text}: '{unknown}' is unknown; choose one of md, tex, csv, json$"
        ):
            chosen_formats(text)
    for text in ("", " , "):
        with pytest.raises(UserError, match=r"^--formats: is empty; choose from md, tex, csv, json$"):
            chosen_formats(text)


def test_csv_tells_why_a_cell_is_absent_and_what_a_value_came_from(eventful: Report, tmp_path: Path) -> None:
    path = write_report(eventful, tmp_path)["csv"]
    rows = {(row["row"], row["column"]): row for row in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))}
    absent, whole = rows["uniform", "ruler-2k"], rows["frozen-sparse", "mmlu"]
    assert (absent["status"], absent["value"], absent["less_paper"]) == ("missing", "", "")
    assert "task_02" in absent["note"]
    assert whole["status"] == "complete"
    assert whole["artifact"] == ""  # its row has no trained model in this store


def test_every_field_is_documented() -> None:
    text = DOCUMENTATION.read_text(encoding="utf-8")
    fields = {name for model in (Report, ReportColumn, ReportRow, Cell, CellDifference) for name in model.model_fields}
    header = (GOLDEN / "table-3.csv").read_text(encoding="utf-8").partition("\n")[0].split(",")
    assert not [name for name in sorted(fields | set(header)) if f"`{name}`" not in text]


def test_reports_import_nothing_that_trains() -> None:
    code = (
        "import sys, tokenweight.reports.build, tokenweight.reports.writing\n"
        "bad = {'torch', 'transformers', 'datasets', 'lm_eval', 'prefect'} & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(bad)}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
