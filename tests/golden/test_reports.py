"""Reports have the numbers that were frozen before the code moved (compare.py says where they are)."""

import importlib.util
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("golden_compare", Path(__file__).with_name("compare.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
compare = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(compare)

PUBLISHED = Path(__file__).parents[2] / "reports/results/mini-31m"
INPUTS = ("--corpus", "books.sha256", "--mmlu", "mmlu.sha256")
FIVE_SEEDS = ("--seeds", "5")
MINI = {
    "table-3": FIVE_SEEDS,
    "table-9": FIVE_SEEDS,
    "planted": FIVE_SEEDS,
    "figure-3": (),
}
MINI_SLOW = {
    "table-4": FIVE_SEEDS,
    "table-8": FIVE_SEEDS,
    "ruler-tasks": FIVE_SEEDS,
    **dict.fromkeys(("table-5", "figure-1", "figure-2", "figure-4", "figure-5"), ()),
}
INCOMPLETE = {"table-5"}  # two rows were never made
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store that holds the published records, and the lists of digests that stand for their data."""
    place = tmp_path_factory.mktemp("mini")
    with tarfile.open(PUBLISHED / "records.tar.xz") as archive:
        archive.extractall(place / "store", filter="data")
    for digests in PUBLISHED.glob("*.sha256"):
        shutil.copy(digests, place)
    return place


def found_in(directory: Path, target: str) -> list[str]:
    """What the one report below a directory has otherwise than its golden."""
    (path,) = (path for (_, name), path in compare.reports_below(directory).items() if name == target)
    return compare.differences_of_report(path)


@pytest.mark.parametrize(
    ("target", "seeds"),
    [*MINI.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in MINI_SLOW.items())],
)
def test_a_mini_report_from_its_records_has_the_frozen_numbers(
    records: Path, target: str, seeds: tuple[str, ...], run_command: Run, tmp_path: Path
) -> None:
    arguments = ("--scale", "mini-31m", *seeds, *INPUTS, "--store", "store", "--out", str(tmp_path))
    code, _, error = run_command(records, "report", target, *arguments, "--formats", "json", "--no-figures")
    assert code == (1 if target in INCOMPLETE else 0), error
    assert found_in(tmp_path, target) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)  # planted: 13 minutes on two cores that do nothing else
@pytest.mark.parametrize("target", ["table-3", "planted"])
def test_a_smoke_report_made_from_nothing_has_the_frozen_numbers(target: str, tmp_path: Path, run_command: Run) -> None:
    if why := compare.other_machine():
        pytest.skip(f"digits of a model trained here repeat on one kind of processor: {why}")
    code, _, error = run_command(tmp_path, "reproduce", target, "--scale", "smoke", "--store", "store", "--out", "out")
    assert code == 0, error
    assert found_in(tmp_path / "out", target) == []


def test_every_report_of_the_goldens_is_compared() -> None:
    frozen = {path.stem for path in (compare.GOLDENS / "mini-31m").glob("*.jsonl")}
    assert frozen == MINI.keys() | MINI_SLOW.keys()


def test_the_comparison_sees_another_digit_and_a_missing_cell() -> None:
    report = json.loads((PUBLISHED / "table-9.json").read_text())
    expected = compare.golden("mini-31m", "table-9")
    assert compare.differences(compare.entries(report), expected) == []
    cell = next(cell for row in report["rows"] for cell in row["cells"] if cell["difference"])
    cell["difference"]["p_corrected"] *= 1 + 1e-8
    missing = report["findings"].pop()
    first, second = compare.differences(compare.entries(report), expected)
    assert "difference p_corrected" in first
    assert second == f"finding {missing['claim']}: {missing['compared']}: is missing"
