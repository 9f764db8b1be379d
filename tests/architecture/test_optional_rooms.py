"""Rooms that nothing in the core needs: all else works where they are deleted (who may import them: test_arrows.py)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("flows", "tasks", "reports", "tokenweight")
ROOMS = {  # folder -> what asks for it
    "tokenweight/fp8": "reproduce table-3/unfrozen-sparse@mmlu --set scorer.precision=fp8",
    "tokenweight/authors_compat": "reproduce table-3/uniform@mmlu --set parity=authors",
    "tokenweight/evaluation/vllm": "reproduce table-3/uniform@mmlu --set evaluation.backend=vllm",
    "tokenweight/evaluation/endpoint": "reproduce table-3/uniform@ruler --set evaluation.backend=endpoint",
    "tokenweight/inspection": "inspect checkpoint text.txt",
    "reports/audit": "audit",
    "reports/html": "report table-9 --html page.html --store .",
}
CODE = """
import contextlib, io, json, sys
# An editable installation finds in the checkout what was deleted here.
sys.meta_path[:] = [one for one in sys.meta_path if "editable" not in str(getattr(one, "__module__", ""))]
from tokenweight.cli import main
for command in json.load(sys.stdin):
    sys.argv, out, err, code = ["tokenweight", *command.split()], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
print(json.dumps(["torch" in sys.modules]))
"""


def test_the_core_works_where_the_rooms_are_deleted_and_asking_for_one_is_one_line(tmp_path: Path) -> None:
    copied = tmp_path / "tree"
    for top in TOP:
        left_out = shutil.ignore_patterns("results", "__pycache__")
        shutil.copytree(ROOT / top, copied / top, symlinks=True, ignore=left_out)
    for room in ROOMS:
        shutil.rmtree(copied / room)
    commands = ["--help", "plan table-3", *ROOMS.values()]
    done = subprocess.run(
        [sys.executable, "-c", CODE], input=json.dumps(commands), capture_output=True, text=True, cwd=tmp_path,
        timeout=600, env={**os.environ, "PYTHONPATH": str(copied), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (usual, plan, *asked), loaded = map(json.loads, done.stdout.splitlines()[:-1]), done.stdout.splitlines()[-1]
    assert (usual[0], "reproduce" in usual[1]) == (0, True)
    assert (plan[0], "0 to reuse" in plan[1]) == (0, True), plan
    for room, (code, _, err) in zip(ROOMS, asked, strict=True):
        assert (code, err.count("\n"), err[:7]) == (2, 1, "error: "), (room, err)
        assert room.rpartition("/")[2] in err
    assert json.loads(loaded) == [False]


def test_a_page_is_made_without_the_audit(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['tokenweight.reports.audit'] = None\n"
        "from pathlib import Path\n"
        "from tokenweight.reports.html.page import render\n"
        "from tokenweight.reports.html.data import Section\n"
        "from tokenweight.reports.model import Report\n"
        "report = Report(target='table-3', title='Main', paper_place='Table 3', scale='mini', stub=('Model',),\n"
        "                columns=(), rows=(), notes=())\n"
        "page = render([Section(report=report, command='made')], Path('.'))\n"
        "sys.exit('own numbers, recomputed' in page)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
