"""The same bytes under any hash seed, locale, time zone and working directory, from another clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from faults_laboratory import Laboratory

Tally = Callable[[str, str, str], None]
ROOT = Path(__file__).parents[2]
SHELLS: dict[str, dict[str, str]] = {
    "C, ASCII": {
        "PYTHONHASHSEED": "1",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "TZ": "Asia/Kathmandu",
    },
    "Turkish": {"PYTHONHASHSEED": "4242", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR", "TZ": "America/St_Johns"},
}
MAKE = """
import sys
from pathlib import Path
from faults_laboratory import EXECUTION, of_books
from tokenweight.tasks.pieces import make_piece

laboratory = of_books(Path(sys.argv[1]), Path(sys.argv[2]))
if sys.argv[3] == "all":
    laboratory.make()
    laboratory.table(Path(sys.argv[1]) / "out")
else:
    for artifact in laboratory.graph.artifacts:
        if artifact.stage.name in ("prepare", "chunk"):
            make_piece([artifact], laboratory.store, EXECUTION)
"""


def clone(place: Path) -> Path:
    """A copy of the product, as another checkout has it."""
    for name in ("flows", "tasks", "reports", "tokenweight"):
        shutil.copytree(ROOT / name, place / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return place


def made_elsewhere(laboratory: Laboratory, home: Path, shell: str, what: str) -> Laboratory:
    (home / "cwd").mkdir(parents=True)
    path = os.pathsep.join([str(clone(home / "clone")), str(Path(__file__).parent)])
    subprocess.run(
        [sys.executable, "-c", MAKE, str(home), str(laboratory.store.root.parent / "books"), what],
        cwd=home / "cwd", env={**os.environ, **SHELLS[shell], "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, check=True,
    )  # fmt: skip
    return laboratory.at(home / "store")


def test_texts_and_prompts_are_the_same_bytes_in_another_shell(
    laboratory: Laboratory, tmp_path: Path, tally: Tally
) -> None:
    other = made_elsewhere(laboratory, tmp_path, "C, ASCII", "texts")
    found, expected = other.contents(), laboratory.contents()
    assert {address.partition("/")[0] for address in found} == {"prepare", "chunk"}
    same = found == {address: expected[address] for address in found}
    tally("another shell, another clone", "texts and prompts", "accepted" if same else "false numbers")


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_everything_is_the_same_bytes(shell: str, laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    other = made_elsewhere(laboratory, tmp_path, shell, "all")
    laboratory.table(tmp_path / "here")
    tables = [(tmp_path / place / "smoke" / "laboratory.csv").read_bytes() for place in ("out", "here")]
    same = other.contents() == laboratory.contents() and tables[0] == tables[1]
    tally("another shell, another clone", "everything", "accepted" if same else "false numbers")
