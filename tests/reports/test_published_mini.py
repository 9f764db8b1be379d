"""The published tables of scale mini: every value stands on records that lie beside it, and is what they say."""

import json
import statistics
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tokenweight.reports.benchmarks import RULER_TASK_COUNT

PUBLISHED = Path(__file__).parents[2] / "reports/results/mini"
TABLES = sorted(path for path in PUBLISHED.glob("*.json"))


@pytest.fixture(scope="module")
def scores() -> dict[str, dict[str, Any]]:
    """The facts of every record, by address."""
    found = {}
    with tarfile.open(PUBLISHED / "records.tar.xz") as archive:
        for member in archive:
            if member.name.endswith("/record.json"):
                file = archive.extractfile(member)
                assert file is not None
                record = json.load(file)
                assert record["devices"] == ["NVIDIA H200"]
                found[member.name.removesuffix("/record.json")] = record["facts"]
    return found


def test_every_number_names_its_records(scores: dict[str, dict[str, Any]]) -> None:
    assert len(TABLES) > 8
    for table in TABLES:
        for row in json.loads(table.read_text())["rows"]:
            for cell in row["cells"]:
                assert (cell["value"] is None) == (cell["status"] in ("missing", "not_in_paper")), (table, row["key"])
                assert bool(cell["addresses"]) or cell["value"] is None
                assert set(cell["addresses"]) <= scores.keys(), (table, row["key"])


@pytest.mark.parametrize(("table", "column"), [("table-3", "ruler"), ("table-3", "ruler-4k"), ("table-4", "ruler")])
def test_a_mean_over_tasks_and_seeds_is_that_of_its_records(
    table: str, column: str, scores: dict[str, dict[str, Any]]
) -> None:
    report = json.loads((PUBLISHED / f"{table}.json").read_text())
    place = [shown["key"] for shown in report["columns"]].index(column)
    checked = 0
    for row in report["rows"]:
        cell = row["cells"][place]
        if cell["status"] == "complete":
            mean = statistics.fmean(scores[address]["mean_score"] for address in cell["addresses"])
            assert cell["value"] == pytest.approx(100 * mean), row["key"]
            checked += 1
    assert checked >= 5


def test_ruler_is_the_mean_of_its_tasks() -> None:
    report = json.loads((PUBLISHED / "ruler-tasks.json").read_text())
    assert len(report["columns"]) == 1 + RULER_TASK_COUNT
    for row in report["rows"]:
        combined, *tasks = (cell["value"] for cell in row["cells"])
        assert combined == pytest.approx(statistics.fmean(tasks)), row["key"]
