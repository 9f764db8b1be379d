"""Frozen numbers of whole reports, and what a later report has otherwise.

    python tests/golden/compare.py RESULTS_DIR             every report below it against its golden; exit code 1 if one differs
    python tests/golden/compare.py RESULTS_DIR --freeze    write the goldens anew from these reports

Goldens are in `reports/<scale>/<target>.jsonl`: one line for each cell, finding and statistic, with every number that the
report's JSON has of it. Addresses, fingerprints, notes and paths are left out: they may change.
`reports/<scale>/<name>.csv` hold columns of the figures' data in the same way.

Values of scale smoke come from models that are trained here. Floating-point sums depend on the processor, so these
digits repeat only on a processor like the one named in `reports/smoke/machine.json`.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDENS = Path(__file__).parent / "reports"
CELL = ("status", "value", "ci_low", "ci_high", "spread", "n", "n_expected", "emphasis", "less_paper")
DIFFERENCE = ("baseline", "value", "ci_low", "ci_high", "p", "p_corrected", "test", "n", "reason")
FINDING = ("difference", "ci_low", "ci_high", "p", "p_corrected", "is_measurable", "seeds_holding", "seeds")
STATISTIC = ("value", "n", "paper")
# Columns of figures' data that have a golden of their own: those that are no cells of the table beside them.
CURVES = {
    "table-3-training.csv": ("row", "seed", "step", "nll", "weighted_nll", "learning_rate", "grad_norm"),
    "figure-3-curve.csv": None,
}

Entries = dict[str, dict[str, Any]]


def entries(report: dict[str, Any]) -> Entries:
    """What a report's JSON says, by name: `cell ROW COLUMN`, `finding CLAIM: COMPARED`, `statistic NAME`."""
    return dict(_entries(report))


def _entries(report: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in report["rows"]:
        for column, cell in zip(report["columns"], row["cells"], strict=True):
            numbers = _kept(cell, CELL)
            if cell.get("difference"):
                numbers["difference"] = _kept(cell["difference"], DIFFERENCE)
            yield f"cell {row['key']} {column['key']}", numbers
    for finding in report.get("findings", ()):
        yield f"finding {finding['claim']}: {finding['compared']}", _kept(finding, FINDING)
    for statistic in report.get("statistics", ()):
        yield f"statistic {statistic['name']}", _kept(statistic, STATISTIC)


def _kept(values: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: values[key] for key in keys if values.get(key) not in (None, [])}


def golden(scale: str, target: str) -> Entries:
    """The frozen entries of a target; FileNotFoundError where it has none."""
    lines = (GOLDENS / scale / f"{target}.jsonl").read_text("utf-8").splitlines()
    return {line.pop("name"): line for line in map(json.loads, lines)}


def differences(found: Entries, expected: Entries) -> list[str]:
    """One line for each entry that is missing, new or not equal, with the numbers that differ."""
    lines = []
    for name in dict.fromkeys([*expected, *found]):
        if name not in found or name not in expected:
            lines.append(f"{name}: {'is missing' if name in expected else 'has no golden'}")
        elif unequal := list(_unequal(found[name], expected[name])):
            lines.append(f"{name}: {'; '.join(unequal)}")
    return lines


def _unequal(found: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*expected, *found]):
        one, other = found.get(key), expected.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from (f"{key} {line}" for line in _unequal(one, other))
        elif not is_equal(one, other):
            yield f"{key} {one!r}, golden {other!r}"


def is_equal(one: Any, other: Any) -> bool:
    """Numbers to nine digits: beyond these an exponential or the order of a sum differs from machine to machine."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-11)
    return bool(one == other)


def reports_below(directory: Path) -> dict[tuple[str, str], Path]:
    """Every report's JSON by its scale and target."""
    found = {}
    for path in sorted(directory.rglob("*.json")):
        content = json.loads(path.read_text("utf-8"))
        if isinstance(content, dict) and {"target", "scale", "rows", "columns"} <= content.keys():
            found[content["scale"], content["target"]] = path
    return found


def differences_of_report(path: Path) -> list[str]:
    """What a report and the figures' data beside it have otherwise than their goldens."""
    report = json.loads(path.read_text("utf-8"))
    lines = differences(entries(report), golden(report["scale"], report["target"]))
    for name in CURVES:
        expected, found = GOLDENS / report["scale"] / name, path.parent / name
        if name.startswith(f"{report['target']}-") and expected.exists() and found.exists():
            lines += [f"{name} {line}" for line in differences(_points(found, CURVES[name]), _points(expected, None))]
    return lines


def _points(path: Path, columns: tuple[str, ...] | None) -> Entries:
    """The lines of a figure's data by their number."""
    header, *rows = _columns(path, columns)
    return {f"line {n}": dict(zip(header, map(_number, row), strict=True)) for n, row in enumerate(rows, start=2)}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _columns(path: Path, columns: tuple[str, ...] | None) -> list[list[str]]:
    """Some columns of a CSV, or all, with their heads."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    places = [header.index(column) for column in columns or header]
    return [[row[place] for place in places] for row in [header, *rows]]


def machine() -> dict[str, str]:
    """What the digits of a model that is trained here depend on."""
    import torch

    processors = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next(
        (line.partition(":")[2].strip() for line in processors.splitlines() if "model name" in line), "unknown"
    )
    return {"processor": model, "instructions": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__}


def other_machine() -> str:
    """Why smoke's digits need not repeat here; empty where they must."""
    frozen, here = json.loads((GOLDENS / "smoke/machine.json").read_text()), machine()
    return "" if frozen == here else f"frozen on {', '.join(frozen.values())}; this is {', '.join(here.values())}"


def freeze(path: Path) -> None:
    """Write the golden of a report, and of the figures' data beside it."""
    report = json.loads(path.read_text("utf-8"))
    folder = GOLDENS / report["scale"]
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"name": name, **entry}, ensure_ascii=False) for name, entry in entries(report).items()]
    (folder / f"{report['target']}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    for name, columns in CURVES.items():
        if name.startswith(f"{report['target']}-") and (path.parent / name).exists():
            with (folder / name).open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(_columns(path.parent / name, columns))
    if report["scale"] == "smoke":
        (folder / "machine.json").write_text(json.dumps(machine(), indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare reports with their goldens.")
    parser.add_argument("results", type=Path, help="Directory of results; reports below it are found by their JSON.")
    parser.add_argument("--freeze", action="store_true", help="Write the goldens anew from these reports.")
    given = parser.parse_args()
    found = reports_below(given.results)
    if not found:
        print(f"{given.results}: no report's JSON below it", file=sys.stderr)
        return 1
    differs = False
    for (scale, target), path in found.items():
        if given.freeze:
            freeze(path)
            print(f"{scale} {target}: frozen")
            continue
        if not (GOLDENS / scale / f"{target}.jsonl").exists():
            print(f"{scale} {target}: has no golden")
            continue
        lines = differences_of_report(path)
        differs |= bool(lines)
        print("\n  ".join([f"{scale} {target}: {f'{len(lines)} differ' if lines else 'equal'}", *lines]))
        if lines and scale == "smoke" and (why := other_machine()):
            print(f"  digits of smoke repeat on one kind of processor: {why}")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
