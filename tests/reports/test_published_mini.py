"""The published study of scale mini: its page has the table's numbers, and these come again from the samples in its records."""

import io
import json
import math
import re
import statistics
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
WARMUP = 25  # steps, as the recipe has it


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


def test_what_was_to_be_checked_first_is_so(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    """The plan's conditions, by the records: bases recall; no gradient norm behind the warm-up is thrice its row's median."""
    recalls, ratios, seconds = list[float](), list[float](), list[float]()
    with tarfile.open(PUBLISHED / "records.tar.xz") as archive:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            kind = (folder.partition("/")[0], name, "pretrained--planted-recall-1024" in folder)
            if kind not in (("train", "metrics.jsonl", False), ("evaluate", "record.json", True)):
                continue
            file = archive.extractfile(member)
            assert file is not None
            text = file.read().decode()
            if name == "record.json":
                recalls.append(100 * json.loads(text)["facts"]["mean_score"])
            else:
                steps = [json.loads(line) for line in text.splitlines()]
                norms = [step["grad_norm"] for step in steps][WARMUP:]
                ratios.append(max(norms) / statistics.median(norms))
                seconds.append(sum(step["seconds"] for step in steps))
    page = " ".join((PUBLISHED / "README.md").read_text().split())
    assert (len(recalls), len(ratios)) == (2, 28)
    extended = cells["no-train-4k", "recall-1k"]["value"]
    assert f"bases recall {statistics.fmean(recalls):.1f} % within 1,024 tokens, extended ones {extended:.1f} %" in page
    assert f"(greatest {max(ratios):.1f})" in page
    assert max(ratios) < 3
    assert f"a row's training {min(seconds):.0f} (uniform) to {max(seconds):.0f} s" in page


def test_what_cannot_be_said_is_what_the_seeds_say(cells: dict[tuple[str, str], dict[str, Any]]) -> None:
    page = " ".join((PUBLISHED / "README.md").read_text().split())
    seeds = {row: cell["by_seed"] for (row, column), cell in cells.items() if column == "ruler" and cell["by_seed"]}
    trained = {row: values for row, values in seeds.items() if not row.startswith("no-train")}
    apart = sorted(abs(first - second) for first, second in trained.values())
    assert f"two seeds of one row are {apart[0]:.1f} to {apart[-1]:.1f} apart" in page
    best = [max(trained, key=lambda row: trained[row][seed]) for seed in (0, 1)]
    assert (best, "with seed 0 frozen sparse is first, with seed 1 PPMI" in page) == (["frozen-sparse", "ppmi"], True)
    losing = {"rho-1", "npmi", "no-train-1k", "no-train-4k", "uniform"}
    away = [
        abs(cell["difference"]["value"])
        for (row, column), cell in cells.items()
        if column in ("ruler", "ruler-chosen") and row not in losing
    ]
    assert 1.0 < max(away) <= 1.1
    assert "are within 1.1 points of uniform" in page


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
