"""Rooms that nothing in the core needs: no file outside of one imports it, and what looks for it does without."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {  # room -> who may import it
    "tokenweight.inspection": ("tokenweight/inspection/", "tokenweight/commands/"),
    "tokenweight.reports.audit": ("reports/audit/", "tokenweight/commands/"),
    "tokenweight.reports.html": ("reports/html/", "tokenweight/commands/"),
}


def imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    direct = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    below = {f"{node.module}.{name.name}" for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
    return direct | below


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_outside_of_an_optional_room_imports_it(room: str) -> None:
    files = [file for top in ("flows", "tasks", "reports", "tokenweight") for file in (ROOT / top).rglob("*.py")]
    offences = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        if not str(file.relative_to(ROOT)).startswith(ROOMS[room])
        for name in sorted(imported(file))
        if f"{name}.".startswith(f"{room}.")
    ]
    assert offences == []


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
