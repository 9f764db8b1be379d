"""Table 1 from what an evaluation stored: its columns are the phrase's tokens, whatever these hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reports_fake_store import manifest_of, paper_table, seal

from tokenweight.pipeline.experiment import Lengths
from tokenweight.pipeline.manifest import Manifest, RowEntry, UnitEntry
from tokenweight.reports.build import build_report
from tokenweight.reports.targets.columns import token_label
from tokenweight.reports.writing import write_report

TASKS = {"long-context-loss": "long_nll", "short-context-loss": "short_nll", "absolute-difference": "difference"}
PAPER_TOKENS = list(dict.fromkeys(column for _, column in paper_table("table-1")))
HOSTILE = [" a_b", "100%", " |", "\n", " ", "", "$x^2$", "κ", "{&}", "#~", "\\", "<b>", "a_b"]


def manifest() -> Manifest:
    rows = tuple(
        RowEntry(
            row=row,
            recipe="table-3/uniform",
            units=(
                UnitEntry(unit=f"phrase/{task}", benchmark="phrase", task=task, address=f"evaluate/{task}", fingerprint="f"),
            ),
        )
        for row, task in TASKS.items()
    )  # fmt: skip
    return manifest_of("table-1", rows, Lengths(ruler=(1024, 4096), longbench_split=1024))


def write_unit(root: Path, task: str, tokens: Sequence[str], first: float) -> None:
    directory = root / "evaluate" / task
    directory.mkdir(parents=True)
    n = len(tokens)
    columns = {
        "doc_id": pa.array(range(n), pa.int64()), "reference": [json.dumps([token]) for token in tokens],
        "metric": [task] * n, "score": [first + i for i in range(n)], "prompt_sha256": ["s"] * n,
        "untruncated_tokens": pa.array([None] * n, pa.int64()),
    }  # fmt: skip
    pq.write_table(pa.table(columns), directory / "rows.parquet")
    summary = {"n_expected": n, "flags": [], "tokens": list(tokens), "about": "The phrase stands somewhere."}
    (directory / "summary.json").write_text(json.dumps(summary))
    protocol = {"metric": task, "short_tokens": 1024}
    seal(directory, {"fingerprint": "f", "stage_version": 1, "config": {"protocol": protocol}, "versions": {}})


def write_all(root: Path, tokens: Sequence[str]) -> None:
    for number, task in enumerate(TASKS.values()):
        write_unit(root, task, tokens, 100.0 * number)


def test_columns_are_the_tokens_and_the_papers_numbers_stand_beside_its_own(tmp_path: Path) -> None:
    write_all(tmp_path, [f" {token}" for token in PAPER_TOKENS])
    report = build_report(manifest(), tmp_path)
    assert [column.label for column in report.columns] == PAPER_TOKENS
    assert [column.paper_label for column in report.columns] == PAPER_TOKENS
    for row in report.rows:
        printed = [cell.paper.printed if cell.paper else None for cell in row.cells]
        assert printed == [paper_table("table-1")[row.key, token].printed for token in PAPER_TOKENS]
    assert report.cell("short-context-loss", "token-7").value == 107
    assert report.cell("absolute-difference", "token-12").value == 212
    assert all(cell.ci_low is None and not cell.marks for row in report.rows for cell in row.cells)
    notes = [note.text for note in report.notes]
    assert "The phrase stands somewhere." in notes
    assert not [note for note in notes if "intervals are rough" in note]
    files = write_report(report, tmp_path / "out")
    assert "<0.01" in files["csv"].read_text()
    assert r"(\<0.01)" in files["md"].read_text()
    assert r"\textless{}0.01" in files["tex"].read_text()


def test_hostile_tokens_are_columns_without_the_papers_numbers(tmp_path: Path) -> None:
    write_all(tmp_path, HOSTILE)
    report = build_report(manifest(), tmp_path)
    assert len({column.key for column in report.columns}) == len(HOSTILE)
    assert [token_label(token) for token in (" a_b", "\n", " ", "")] == ["a_b", "\\n", '" "', '""']
    assert all(cell.paper is None for row in report.rows for cell in row.cells)
    files = write_report(report, tmp_path / "out")
    heading = next(line for line in files["tex"].read_text().splitlines() if line.startswith("Token & "))
    assert r"a\_b & 100\% & " in heading
    assert r"\textbackslash{}n & " in heading
    table = [line for line in files["md"].read_text().splitlines() if line.startswith("|")]
    cells = {len(line.replace("\\|", "").split("|")) for line in table}
    assert cells == {len(HOSTILE) + 3}


def test_without_records_the_papers_phrase_stands_there_unmeasured(tmp_path: Path) -> None:
    report = build_report(manifest(), tmp_path)
    assert [column.label for column in report.columns][:2] == ["inspired", "by"]
    assert {cell.status for row in report.rows for cell in row.cells} == {"missing"}
    assert report.cell("long-context-loss", report.columns[0].key).paper.printed == "8.75"


def test_seeds_with_other_phrases_are_refused(tmp_path: Path) -> None:
    write_all(tmp_path, PAPER_TOKENS)
    write_all(tmp_path / "evaluate" / "seed", [*PAPER_TOKENS[:-1], "pages"])
    first = manifest().rows
    other = [
        row.model_copy(
            update={
                "seed": 1,
                "units": tuple(u.model_copy(update={"address": f"evaluate/seed/{u.address}"}) for u in row.units),
            }
        )
        for row in first
    ]
    report = build_report(manifest().model_copy(update={"rows": (*first, *other)}), tmp_path)
    assert {cell.status for row in report.rows for cell in row.cells} == {"refused"}
    assert any("cannot be compared" in note.text for note in report.notes)


@pytest.mark.parametrize("tokens", [PAPER_TOKENS[:5], [*PAPER_TOKENS[:-1], "pages"]])
def test_a_row_of_other_tokens_is_refused(tokens: list[str], tmp_path: Path) -> None:
    write_unit(tmp_path, "long_nll", PAPER_TOKENS, 0)
    write_unit(tmp_path, "short_nll", tokens, 0)
    report = build_report(manifest(), tmp_path)
    assert [column.label for column in report.columns] == PAPER_TOKENS
    status = {row.key: {cell.status for cell in row.cells} for row in report.rows}
    assert status["long-context-loss"] == {"complete"}
    assert status["short-context-loss"] == {"refused"}
    assert status["absolute-difference"] == {"missing"}
    assert any("its tokens are not those of the table" in note.text for note in report.notes)
