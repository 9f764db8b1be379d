"""No code outside `tokenweight/evaluation` knows a benchmark by its name: what it needs is declared, in the protocol or as data."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tokenweight.evaluation.units import BENCHMARKS

ROOT = Path(__file__).parents[2]
ROOMS = ("flows", "tasks", "reports", "tokenweight")
NAMES = {name for name, benchmark in BENCHMARKS.items() if not benchmark.is_family}  # `lm_eval` is a package too
TARGETS = "reports/targets/__init__.py"  # `planted` is the name of a target too


def named(tree: ast.AST) -> Iterator[str]:
    """Texts that are a benchmark's name or begin as one of its units, but for kinds of measures and figures and `rescore`'s own."""
    allowed = set[int]()
    for node in ast.walk(tree):
        is_kind = isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "kind"
        is_rescore = isinstance(node, ast.Call) and ast.unparse(node.func) == "_rescore"  # a command for each
        if is_kind or is_rescore:
            allowed |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in allowed else None
        if isinstance(text, str) and text.partition("/")[0] in NAMES:
            yield f"line {node.lineno}: {text!r}"


def test_no_benchmark_is_known_by_name_outside_its_room() -> None:
    found = {}
    for file in sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        place = file.relative_to(ROOT).as_posix()
        if (
            not place.startswith("tokenweight/evaluation/")
            and place != TARGETS
            and (texts := list(named(ast.parse(file.read_text("utf-8")))))
        ):
            found[place] = texts
    assert found == {}


def test_a_name_would_be_found() -> None:
    assert list(named(ast.parse("if unit.benchmark == 'mmlu': pass"))) == ["line 1: 'mmlu'"]
    assert list(named(ast.parse("key = f'perplexity/{tokens}'"))) == ["line 1: 'perplexity/'"]
    assert list(named(ast.parse("class Figure:\n    kind: Literal['pmi']"))) == []
