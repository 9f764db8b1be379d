"""The published tables of scale mini-31m: every value stands on records that lie beside it, and is what they say."""

import json
import re
import statistics
import tarfile
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

PUBLISHED = Path(__file__).parents[2] / "reports/results/mini-31m"
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
    assert len(report["columns"]) == 1 + 13
    for row in report["rows"]:
        combined, *tasks = (cell["value"] for cell in row["cells"])
        assert combined == pytest.approx(statistics.fmean(tasks)), row["key"]


_ROW = re.compile(
    r"\| .* \| (?P<difference>[+-][\d.]+)(?: \[(?P<low>-?[\d.]+), (?P<high>-?[\d.]+)\])? \| (?P<seeds>\d) of 5 \| (?P<p>.*?) \|"
)


def _as_read(finding: dict[str, Any], decimals: int) -> tuple[str, ...]:
    """A finding as the reading prints it; the direction of a perplexity's or NLL's order does not show in its numbers."""
    low, high = (f"{finding[key]:.{decimals}f}" for key in ("ci_low", "ci_high"))
    p = finding["p_corrected"]
    printed = "cannot be tested" if p is None else "<0.001" if p < 0.001 else f"{p:.{3 if p < 0.1 else 2}f}"
    return (f"{finding['difference']:+.{decimals}f}", low, high, str(finding["seeds_holding"]), printed)


def test_the_reading_has_every_finding_with_its_numbers() -> None:
    tables = ("table-3", "table-4", "table-9", "planted")
    findings = [one for name in tables for one in json.loads((PUBLISHED / f"{name}.json").read_text())["findings"]]
    rows = [match for line in (PUBLISHED / "README.md").read_text().splitlines() if (match := _ROW.match(line))]
    assert len(rows) == len(findings)
    found = {_as_read(finding, decimals) for finding in findings for decimals in (2, 3)}
    for row in rows:
        p = "1.00" if row["p"] == "1.0" else row["p"]
        assert (row["difference"], str(row["low"]), str(row["high"]), row["seeds"], p) in found, row[0]


def _rows(heading: str) -> list[list[str]]:
    """The cells of the table in the reading whose head begins so."""
    lines = iter((PUBLISHED / "README.md").read_text().splitlines())
    head = next(line for line in lines if line.startswith(f"| {heading}"))
    next(lines)
    table = [head, *takewhile(lambda line: line.startswith("|"), lines)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_tasks_of_the_reading_are_those_of_their_table() -> None:
    report = json.loads((PUBLISHED / "ruler-tasks.json").read_text())
    by_row = {row["key"]: [cell["value"] for cell in row["cells"]] for row in report["rows"]}
    columns = [column["key"] for column in report["columns"]]
    order = (
        "uniform",
        "unfrozen-sparse",
        "unfrozen-dense",
        "frozen-sparse",
        "frozen-dense",
        "ppmi",
        "npmi",
        "sppmi",
        "snpmi",
    )
    for name, *values in _rows("mean over four lengths")[1:]:
        place = columns.index("ruler" if name == "RULER" else name.strip("`"))
        assert values == [f"{by_row[row][place]:.1f}" for row in order], name


def test_the_order_of_each_seed_is_that_of_its_records(scores: dict[str, dict[str, Any]]) -> None:
    report = json.loads((PUBLISHED / "table-3.json").read_text())
    place = [column["key"] for column in report["columns"]].index("ruler")
    labels = {"lcde": "LCDE"} | {
        f"{how}-{kind}": f"{kind} {how}" for how in ("frozen", "unfrozen") for kind in ("sparse", "dense")
    }
    rows = [row for row in report["rows"] if not row["key"].startswith("no-train")]
    for seed, told in _rows("seed |")[1:]:
        name = f"-seed{seed}--" if seed != "0" else "--"
        means = {
            labels.get(row["key"], row["key"]): 100 * statistics.fmean(
                scores[address]["mean_score"]
                for address in row["cells"][place]["addresses"]
                if name in address and (seed != "0" or "-seed" not in address)
            )
            for row in rows
        }  # fmt: skip
        ranked = sorted(means.items(), key=lambda item: -item[1])
        assert told == ", ".join(f"{label} {mean:.2f}" for label, mean in ranked)


def test_the_speeds_of_the_reading_are_those_of_its_trainings(scores: dict[str, dict[str, Any]]) -> None:
    patterns = {
        "pre-training the base": r"pretrain/llama-8x512-.*",
        "continued training": r"train/.*d1cf7e-4096-uniform(-seed\d)?-[0-9a-f]{8}",
        "dense frozen": r"train/.*-frozen-dense-0\.75(-seed\d)?-[0-9a-f]{8}",
        "sparse frozen": r"train/.*-frozen-sparse-0\.4(-seed\d)?-[0-9a-f]{8}",
        "dense unfrozen": r"train/.*-unfrozen-dense-0\.75(-seed\d)?-[0-9a-f]{8}",
        "sparse unfrozen": r"train/.*-unfrozen-sparse-0\.2(-seed\d)?-[0-9a-f]{8}",
    }
    rows = _rows("| tokens/s")[1:]
    assert len(rows) == len(patterns)
    for (label, *told), (begins, pattern) in zip(rows, patterns.items(), strict=True):
        assert label.startswith(begins)
        facts = [fact for address, fact in scores.items() if re.fullmatch(pattern, address)]
        for key, text, best in zip(("tokens_per_second", "mfu", "seconds"), told, (max, max, min), strict=True):
            values = [fact[key] for fact in facts]
            shown = [statistics.median(values), best(values)][: len(text.split(";"))]
            form = {
                "tokens_per_second": lambda x: f"{round(x, -3):,.0f}",
                "mfu": "{:.3f}".format,
                "seconds": "{:.0f}".format,
            }[key]
            assert text == "; ".join(map(form, shown)), (label, key)
