"""The arrows of the house: flows -> tasks -> tokenweight, reports -> pipeline and recipes. No room looks back."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP = ("flows", "tasks", "reports")  # at the top of the repository, and links in the package

# What each room may import of ours: one way only. Rooms that are absent here import none of the others.
SMALL = {
    "errors",
    "progress",
    "flat",
    "embedded",
    "files",
    "latex",
    "webpage",
    "assets",
    "optional",
    "processes",
}
BASE = SMALL | {"recipes", "pipeline"}
MAKING = BASE | {"corpus", "context", "weighting"}
LIBRARY = MAKING | {"training", "evaluation", "inspection", "planning"}
ARROWS = {
    "embedded": {"processes"},
    "files": SMALL,
    "flat": {"errors"},
    "latex": {"webpage"},
    "optional": SMALL,
    "recipes": SMALL | {"weighting"},
    "pipeline": SMALL | {"recipes"},
    "gpus": BASE,
    "context": BASE,
    "corpus": BASE,
    "training": MAKING,
    "fp8": SMALL | {"weighting"},  # fp8 and authors_compat are optional rooms: nobody imports them
    "authors_compat": MAKING | {"training"},
    "evaluation": MAKING | {"training"},
    "examples": MAKING,
    "inspection": MAKING | {"training"},
    "planning": LIBRARY,
    "reports": BASE,
    "tasks": LIBRARY | {"gpus", "reports"},
    "flows": LIBRARY | {"gpus", "tasks", "reports"},
}
OPTIONAL = (  # rooms that the core works without: test_optional_rooms.py
    "tokenweight.fp8", "tokenweight.authors_compat", "tokenweight.evaluation.vllm", "tokenweight.evaluation.endpoint",
    "tokenweight.inspection",
    "tokenweight.reports.audit", "tokenweight.reports.html",
)  # fmt: skip
ASKED_IN = ("tokenweight.commands.",)  # what the user asks for an optional room by
COMMANDS = {"commands", "cli"}  # the top room, although its folder lies in the package: may import everything


def room(module: str) -> str:
    """`tokenweight.corpus.novel` -> `corpus`; the package itself is the empty room."""
    return [*module.split("."), ""][1]


@cache
def files() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    found = {}
    for top, prefix in [*((name, f"tokenweight.{name}") for name in TOP), ("tokenweight", "tokenweight")]:
        for file in sorted((ROOT / top).rglob("*.py")):
            parts = file.relative_to(ROOT / top).with_suffix("").parts
            if top != "tokenweight" or parts[0] not in TOP:
                found[".".join([prefix, *(part for part in parts if part != "__init__")])] = file
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Dotted names that a module imports, wherever in its file, but for those of the type checker alone."""
    found, tree = set[str](), ast.parse(files()[module].read_text("utf-8"))
    unseen = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ClassDef):  # a stage names the function that does its work
            named = [
                one.value for one in node.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "work"
            ]
            found |= {f"tokenweight.{value.value}" for value in named if isinstance(value, ast.Constant)}
    return frozenset(found)


def arrows() -> dict[str, list[str]]:
    """`room -> room`: the imports behind it."""
    found: dict[str, list[str]] = {}
    for module in files():
        for name in sorted(imports(module)):
            source, target = room(module), room(name)
            if name.startswith("tokenweight.") and source != target and source not in COMMANDS:
                found.setdefault(f"{source} -> {target}", []).append(f"{module} imports {name}")
    return found


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Groups of more than one room of which each can be reached from each."""

    def reached(start: str) -> set[str]:
        seen, ahead = set[str](), [start]
        while ahead:
            for follower in edges.get(ahead.pop(), ()):
                if follower not in seen:
                    seen.add(follower)
                    ahead.append(follower)
        return seen

    after = {one: reached(one) for one in edges}
    groups = {frozenset({one, *(other for other in after[one] if one in after.get(other, ()))}) for one in edges}
    return [set(group) for group in groups if len(group) > 1]


def test_rooms_import_one_way_only() -> None:
    wrong = {
        arrow: lines
        for arrow, lines in arrows().items()
        if arrow.partition(" -> ")[2] not in ARROWS.get(arrow.partition(" -> ")[0], set())
    }
    assert wrong == {}


def test_no_circle_is_left() -> None:
    edges: dict[str, set[str]] = {}
    for arrow in arrows():
        source, _, target = arrow.partition(" -> ")
        edges.setdefault(source, set()).add(target)
    assert circles(edges) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [{"b", "c"}]


def outside(modules: Iterable[str], packages: tuple[str, ...]) -> list[str]:
    """Imports of other people's packages."""
    return [
        f"{module}: {name}"
        for module in modules
        for name in sorted(imports(module))
        if any(f"{name}.".startswith(f"{package}.") for package in packages)
    ]


def test_heavy_packages_stay_where_they_belong() -> None:
    by_room: dict[str, list[str]] = {}
    for module in files():
        by_room.setdefault(room(module), []).append(module)
    library = [module for name in by_room.keys() - {*TOP, *COMMANDS} for module in by_room[name]]
    heavy = ("torch", "transformers", "lm_eval", "datasets", "deepspeed")
    assert outside(library, ("prefect",)) == []
    assert outside(by_room["reports"], (*heavy, "prefect")) == []
    assert outside(by_room["flows"], heavy) == []
    assert outside(by_room["weighting"], ("transformers", "datasets", "lm_eval")) == []


@pytest.mark.parametrize(
    "module",
    [
        "tokenweight",
        "tokenweight.cli",
        "tokenweight.planning.graph",
        "tokenweight.planning.plan",
        "tokenweight.commands.inspection",
        "tokenweight.tasks.experiments",
        "tokenweight.reports.build",
        "tokenweight.reports.files",
        "tokenweight.reports.audit",
        "tokenweight.reports.html.page",
        "tokenweight.reports.targets.find",
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
