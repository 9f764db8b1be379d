"""`tokenweight report`: styles and formats at the command line, without torch, Prefect or a record."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

from tokenweight.pipeline.manifest import keep_manifest
from tokenweight.pipeline.store import Store
from tokenweight.recipes import Inputs
from tokenweight.reports.paper.numbers import paper_number
from tokenweight.tasks.experiments import plan_texts

# The command in a process of its own, which says at its end what of the heavy packages it loaded.
PROGRAM = """
import sys
from tokenweight.cli import main
try:
    main()
finally:
    print("loaded:", sorted({"torch", "prefect", "transformers"} & set(sys.modules)), file=sys.stderr)
"""


def report(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, "report", *arguments, "--store", ".", "--out", "out"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600)


def test_the_papers_table_needs_no_record_and_loads_nothing_heavy(tmp_path: Path) -> None:
    done = report(tmp_path, "table-5", "--style", "paper", "--formats", "csv,tex")
    assert done.returncode == 0, done.stderr
    assert "loaded: []" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out" / "smoke").iterdir()) == [
        "table-5-macros.tex",
        "table-5.csv",
        "table-5.tex",
    ]
    with (tmp_path / "out" / "smoke" / "table-5.csv").open(encoding="utf-8") as file:
        rows = {(row["row"], row["column"]): row["paper_printed"] for row in csv.DictReader(file)}
    printed = paper_number("table-5", "sparse-1b", "mmlu-difference")
    assert printed is not None
    assert rows["sparse-1b", "mmlu-difference"] == printed.printed


def test_what_was_run_at_another_scale_or_is_asked_for_otherwise_is_named_as_such(tmp_path: Path) -> None:
    text = (
        "name: mine\nbenchmarks: [mmlu]\nrows: [{label: a, recipe: table-3/uniform}]\nscales: {tiny: {like: smoke}}\n"
    )
    ((planned,), _) = plan_texts([text], "tiny", Inputs(), Store(tmp_path))
    keep_manifest(planned.manifest, tmp_path)
    for arguments in (["mine"], ["mine", "--scale", "tiny", "--seeds", "2"]):
        done = report(tmp_path, *arguments)
        assert done.returncode == 2
        assert "error: mine: is in the store as it was run at scale tiny; give --scale, and neither" in done.stderr


def test_what_cannot_be_shown_is_one_line(tmp_path: Path) -> None:
    done = report(tmp_path, "figure-3", "--style", "paper")
    assert done.returncode == 2
    assert "error: --style paper: the paper prints no numbers of figure-3; use --style ours" in done.stderr
    assert not (tmp_path / "out").exists()
