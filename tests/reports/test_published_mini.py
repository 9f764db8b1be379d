"""The published study of scale mini: its page has the table's numbers, and these come again from the samples in its records."""

import io
import json
import math
import re
import tarfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

PUBLISHED = Path(__file__).parents[2] / "reports/results/mini"
KEYS = {
    "not trained": "no-train-4k", "uniform": "uniform", "unfrozen sparse 0.2": "unfrozen-sparse",
    "unfrozen dense 0.75": "unfrozen-dense", "frozen sparse 0.4": "frozen-sparse", "frozen dense 0.75": "frozen-dense",
    "LongCE": "long-ce", "EXACT": "exact", "LongFilter": "longfilter", "rho-1": "rho-1",
}  # fmt: skip
COLUMNS = {
    "nll-long_recall": 3, "nll-short_context": 3, "longppl": 2, "perplexity-all": 2, "ruler-chosen": 1, "ruler": 1,
}  # fmt: skip
Values = dict[tuple[str, str], float]


@pytest.fixture(scope="module")
def report() -> Any:
    return json.loads((PUBLISHED / "study.json").read_text())


@pytest.fixture(scope="module")
def cells(report: Any) -> dict[tuple[str, str], dict[str, Any]]:
    columns = [column["key"] for column in report["columns"]]
    return {(row["key"], key): cell for row in report["rows"] for key, cell in zip(columns, row["cells"], strict=True)}


def test_the_page_has_the_tables_values(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    lines = [line.strip("|").split("|") for line in (PUBLISHED / "README.md").read_text().splitlines()]
    told = {line[0].strip(): [value.strip() for value in line[1:]] for line in lines if len(line) == 7}
    assert told.keys() >= KEYS.keys()
    for label, key in KEYS.items():
        expected = [f"{cells[key, column]['value']:.{decimals}f}" for column, decimals in COLUMNS.items()]
        assert told[label] == expected, label


def test_the_page_has_the_findings_numbers(report: Any) -> None:
    page = " ".join((PUBLISHED / "README.md").read_text().split())
    for number, decimals in ((4, 2), (5, 2), (6, 2), (9, 3), (10, 3)):
        finding = report["findings"][number - 1]
        assert finding["claim"].startswith(f"{number}. ")
        low, high, value = (f"{finding[key]:.{decimals}f}" for key in ("ci_low", "ci_high", "difference"))
        assert re.search(rf"{re.escape(value)} \[{re.escape(low)}, {re.escape(high)}\]", page), finding["claim"]


def test_values_come_again_from_the_samples(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    """By plain code over every sample's score: means of seeds, of tasks, of documents."""
    wanted = {address for cell in cells.values() for address in cell["addresses"]}
    scores: dict[str, pd.Series] = {}
    with tarfile.open(PUBLISHED / "records.tar.xz") as archive:
        for member in archive:
            address, _, name = member.name.rpartition("/")
            if name == "rows.parquet" and address in wanted:
                file = archive.extractfile(member)
                assert file is not None
                scores[address] = pd.read_parquet(io.BytesIO(file.read()), columns=["score"])["score"]
    assert scores.keys() == wanted
    for (row, column), cell in cells.items():
        if cell["status"] != "complete" or column not in COLUMNS or column == "ruler-chosen":
            continue
        means = [scores[address].mean() for address in cell["addresses"]]
        if column in ("longppl", "perplexity-all"):  # a unit a seed
            means = [math.exp(mean) for mean in means]
        value = sum(means) / len(means) * (100 if column == "ruler" else 1)
        assert cell["value"] == pytest.approx(value, rel=1e-6), (row, column)
