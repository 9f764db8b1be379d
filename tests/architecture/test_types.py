"""The type checker, run as anyone would run it, sees wrong calls across rooms."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLANTED = """
from tokenweight.pipeline.manifest import manifest_path

manifest_path("store", "table-3", 3)
"""


@pytest.mark.slow
def test_plain_mypy_reports_a_planted_wrong_call_across_rooms(tmp_path: Path) -> None:
    for top in ("flows", "tasks", "reports", "tokenweight", "benchmarks"):
        shutil.copytree(ROOT / top, tmp_path / top, symlinks=True, ignore=shutil.ignore_patterns("results"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    if (ROOT / ".mypy_cache").is_dir():  # else it takes minutes
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / ".mypy_cache")
    (tmp_path / "reports" / "planted.py").write_text(PLANTED)
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=tmp_path, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [line.partition(": error: ")[0].rpartition("/")[2] for line in found] == ["planted.py:4"] * 2, done.stdout
    assert 'expected "Path"' in found[0]
    assert 'expected "str"' in found[1]
