"""Table 6 from measurements: the one table that no model of the store stands behind."""

from __future__ import annotations

from collections.abc import Sequence
from glob import glob
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.reports.runtimes import read_runtimes, runtime_report
from tokenweight.reports.writing import write_report


def render_runtimes(measurements: Sequence[str], out_dir: Path) -> dict[str, Path]:
    """Write Table 6 of the files that paths or patterns name; UserError where a pattern names none."""
    files: list[Path] = []
    for pattern in measurements:
        found = [Path(path) for path in sorted(glob(pattern))]
        if not found:
            raise UserError(
                f"measurements: {pattern} names no file; run benchmarks/training_cost.py on your GPUs first"
            )
        files += found
    return write_report(runtime_report(read_runtimes(files)), out_dir)
