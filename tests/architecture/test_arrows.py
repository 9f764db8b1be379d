"""The arrows of the house: flows -> tasks -> tokenweight, tasks -> reports -> store and recipes. No room looks back."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {
    "flows": ROOT / "flows",
    "tasks": ROOT / "tasks",
    "reports": ROOT / "reports",
    "tokenweight": ROOT / "tokenweight",
}
ENTRY_POINTS = ROOT / "tokenweight" / "commands"  # the commands start flows and render reports


def imports(file: Path) -> set[str]:
    """Dotted names that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def offences(room: str, forbidden: tuple[str, ...], but: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{file.relative_to(ROOT)}: {name}"
        for file in sorted(ROOMS[room].rglob("*.py"))
        if ENTRY_POINTS not in file.parents
        for name in sorted(imports(file))
        if any(f"{name}.".startswith(f"{prefix}.") for prefix in forbidden)
        and not any(f"{name}.".startswith(f"{prefix}.") for prefix in but)
    ]


def test_the_library_knows_no_prefect_and_no_other_room() -> None:
    assert offences("tokenweight", ("prefect", "tokenweight.flows", "tokenweight.tasks", "tokenweight.reports")) == []


def test_reports_knows_only_store_and_recipes() -> None:
    rooms = ("tokenweight.reports", "tokenweight.pipeline", "tokenweight.recipes")
    allowed = (*rooms, "tokenweight.errors", "tokenweight.webpage", "tokenweight.latex_escapes")
    heavy = ("torch", "transformers", "prefect", "lm_eval", "datasets", "deepspeed", "tokenweight")
    assert offences("reports", heavy, but=allowed) == []


def test_tasks_know_no_flows() -> None:
    assert offences("tasks", ("tokenweight.flows",)) == []


def test_flows_only_wire() -> None:
    assert (
        offences(
            "flows", ("torch", "transformers", "lm_eval", "datasets", "tokenweight.training", "tokenweight.reports")
        )
        == []
    )


def test_nothing_but_the_command_line_imports_a_command() -> None:
    rooms = [line for room in ROOMS for line in offences(room, ("tokenweight.commands", "tokenweight.cli"))]
    assert [line for line in rooms if not line.startswith("tokenweight/cli.py")] == []


def test_weighting_is_pure_torch() -> None:
    heavy = ("transformers", "datasets", "lm_eval", "tokenweight")
    allowed = ("tokenweight.weighting", "tokenweight.recipes.schema", "tokenweight.errors")
    found = [line for line in offences("tokenweight", heavy, but=allowed) if line.startswith("tokenweight/weighting/")]
    assert found == []


@pytest.mark.parametrize(
    "module",
    [
        "tokenweight",
        "tokenweight.cli",
        "tokenweight.planning.graph",
        "tokenweight.planning.plan",
        "tokenweight.commands.inspection",
        "tokenweight.tasks.collect",
        "tokenweight.reports.build",
        "tokenweight.reports.figures.writing",
        "tokenweight.reports.audit",
        "tokenweight.reports.html.page",
        "tokenweight.tasks.html_page",
        "tokenweight.webpage",
    ],
)
def test_what_must_be_light_loads_nothing_heavy(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "print([m for m in ('torch', 'transformers', 'datasets', 'lm_eval', 'prefect') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
