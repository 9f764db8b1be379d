"""Mutation testing of a room of tokenweight: change one index, sign, comparison, constant or normaliser at a time.

    python scripts/mutate.py                            # all of weighting; about as many runs of tests/weighting
    python scripts/mutate.py --sample 40                # a random 40 of them
    python scripts/mutate.py --only head.py             # one file
    python scripts/mutate.py --room corpus --sample 40  # another room

Each mutation is compiled in memory in a fork of a process that has torch and transformers loaded already, and
the room's tests run there until the first failure. A mutation that no test notices survives: it needs a test, or a
line in scripts/equivalent_mutations.txt that says why no test could notice it. Exit code 1 where one has neither.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutated_module import ROOT, mutate_module

# Rooms, and the tests of each; those that are about the mutated file go first.
ROOMS: dict[str, tuple[str, ...]] = {
    "weighting": ("weighting",),
    "training": (
        "training/test_float64_reference.py", "training/test_trainer.py", "faults/test_false_checkpoints.py",
        "training/test_scoring.py", "training/test_stopping.py", "training/test_parity.py", "training/test_saving.py",
        "training/test_weak_to_strong.py", "training/test_documents.py", "training/test_launch_check.py",
        "training/test_random_base.py", "training/test_pretraining.py", "pipeline/test_identity.py", "planning/test_planning.py",
    ),
    "context": ("context", "faults/test_false_checkpoints.py", "training/test_trainer.py"),
    "corpus": ("corpus", "inspection/test_tokens.py"),
    "pipeline": (
        "store", "pipeline/test_identity.py", "planning/test_planning.py", "faults/test_damage.py",
        "experiments/test_user_file.py", "reports/test_manifest_commands.py",
    ),
}  # fmt: skip
# Slow ones, for the files alone that they are about.
SLOWER = {"training": ("training", "cli/test_score.py")}
EQUIVALENT = ROOT / "scripts" / "equivalent_mutations.txt"
SKIPPED_FILES = ("__init__.py",)  # names only

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.Mult,
}
CALLS = {
    "abs": "neg",
    "add_": "sub_",
    "all": "any",
    "any": "all",
    "clamp_max": "clamp_min",
    "clamp_min": "clamp_max",
    "exp": "log",
    "expm1": "exp",
    "exp_": "neg_",
    "log": "exp",
    "logsumexp": "amax",
    "max": "min",
    "mean": "sum",
    "min": "max",
    "mul_": "div_",
    "ones_like": "zeros_like",
    "sub_": "add_",
    "sum": "mean",
    "zeros": "ones",
    "zeros_like": "ones_like",
}
DROPPED_CALLS = ("detach", "double", "float", "t", "flatten")  # x.detach() -> x


@dataclass(frozen=True)
class Mutation:
    """One change of one node of one file."""

    file: str
    line: int
    before: str
    after: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before}  ->  {self.after}"

    @property
    def key(self) -> str:
        """What equivalent_mutations.txt names it by: no line number, so that edits elsewhere do not matter."""
        return f"{self.file}: {self.before} -> {self.after}"


# --- What can be changed ---------------------------------------------------------------------------


def mutations(path: Path) -> list[Mutation]:
    """Every mutation of a file, in the order of its lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    original = ast.unparse(tree).splitlines()
    found = []
    for index, node in enumerate(_mutable(tree)):
        for change in _changes(node):
            mutated = copy.deepcopy(tree)
            change(_mutable(mutated)[index])
            before, after = _difference(original, ast.unparse(ast.fix_missing_locations(mutated)).splitlines())
            found.append(Mutation(path.name, getattr(node, "lineno", 0), before, after, mutated))
    return sorted(found, key=lambda mutation: mutation.line)


def _difference(before: list[str], after: list[str]) -> tuple[str, str]:
    """The first line that differs, before and after."""
    first = next(i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    return before[first].strip(), after[first].strip()


def _mutable(tree: ast.AST) -> list[ast.AST]:
    """Nodes in a fixed order, without docstrings, annotations, messages of errors, and names of other modules.

    Nor zip's `strict`, an assertion of our own, and how far JSON is indented.
    """
    nodes: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr)):
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        if isinstance(node, ast.keyword) and node.arg in ("strict", "indent"):
            return
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return
        nodes.append(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child)

    visit(tree)
    return nodes


def _changes(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    """Functions that change such a node in place."""
    match node:
        case ast.Compare():
            for position, operator in enumerate(node.ops):
                for other in COMPARISONS[type(operator)]:
                    yield _comparison(position, other)
        case ast.BoolOp():
            yield _set("op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.BinOp() | ast.AugAssign() if type(node.op) in ARITHMETIC:
            yield _set("op", ARITHMETIC[type(node.op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield _become(lambda n: n.operand)
        case ast.Constant(value=bool()):
            yield _set("value", not node.value)
        case ast.Constant(value=int()):
            yield _set("value", node.value + 1)
            yield _set("value", node.value - 1)
        case ast.Constant(value=float()):
            yield _set("value", node.value + 1)
            if node.value:
                yield _set("value", node.value / 2)
        case ast.Slice():
            if node.lower is not None:
                yield _set("lower", None)
            if node.upper is not None:
                yield _set("upper", None)
        case ast.Call(func=ast.Attribute(attr=name)) if name in DROPPED_CALLS:
            yield _become(lambda n: n.func.value)
        case ast.Attribute() if node.attr in CALLS:
            yield _set("attr", CALLS[node.attr])
        case ast.Name(id="min" | "max"):
            yield _set("id", CALLS[node.id])
        case ast.Expr(value=ast.Call()):
            yield _become(lambda n: ast.Pass())
    if isinstance(node, (ast.If, ast.IfExp)) and isinstance(node.test, (ast.Name, ast.Attribute, ast.Call)):
        yield _negate_test


def _comparison(position: int, other: type[ast.cmpop]) -> Callable[[Any], None]:
    def change(node: ast.Compare) -> None:
        node.ops[position] = other()

    return change


def _set(field: str, value: Any) -> Callable[[Any], None]:
    return lambda node: setattr(node, field, value)


def _become(choose: Callable[[Any], ast.AST]) -> Callable[[Any], None]:
    """Turn a node into another by taking over its class and fields."""

    def change(node: Any) -> None:
        other = choose(node)
        node.__class__ = other.__class__
        node.__dict__.clear()
        node.__dict__.update(other.__dict__)

    return change


def _negate_test(node: ast.If | ast.IfExp) -> None:
    node.test = ast.UnaryOp(ast.Not(), node.test)


# --- One run of the tests --------------------------------------------------------------------------


def run_tests(mutation: Mutation | None, room: str) -> int:
    """pytest's exit code of the room's tests with one mutation (None: as they are), up to the first failure."""
    import pytest
    from hypothesis import settings

    if mutation is not None:
        mutate_module(room, mutation.file, ast.unparse(ast.fix_missing_locations(mutation.tree)))
    settings.register_profile("mutate", derandomize=True, database=None)
    settings.load_profile("mutate")
    files, slower = _files(ROOMS[room]), _files(SLOWER.get(room, ()))
    files.sort(key=lambda file: room == "weighting" and "trainer" in file.name)
    either = dict.fromkeys([*files, *slower])
    nearest = [file for file in either if mutation is not None and _is_near(file, mutation, room)]
    for group in filter(None, (nearest, [file for file in files if file not in nearest])):
        plugins = ["-p", "no:cacheprovider", "-p", "no:unraisableexception"]
        status = pytest.main(["-x", "-q", "-m", "not slow", *plugins, *map(str, group)])
        if status != 0:
            return int(status)
    return 0


def _files(names: Iterable[str]) -> list[Path]:
    places = [ROOT / "tests" / name for name in names]
    return [file for place in places for file in (sorted(place.glob("test_*.py")) if place.is_dir() else [place])]


def _is_near(tests: Path, mutation: Mutation, room: str) -> bool:
    """Whether a file of tests has the name of the mutated one in its own, or imports from it."""
    name = mutation.file.removesuffix(".py")
    imported = rf"tokenweight\.{room}(\.{name}\b| import [^\n]*\b{name}\b)"
    return name in tests.name or re.search(imported, tests.read_text(encoding="utf-8")) is not None


def start(mutation: Mutation | None, room: str) -> int:
    """Fork a silent process that runs the tests; its id."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            status = run_tests(mutation, room)
        finally:
            os._exit(status)
    return process


def run_all(chosen: list[Mutation], room: str, jobs: int, limit_seconds: float) -> list[tuple[Mutation, str]]:
    """Every mutation's outcome: killed, timeout (counts as killed) or survived."""
    waiting, outcomes = list(reversed(chosen)), []
    running: dict[int, tuple[Mutation, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutation = waiting.pop()
            running[start(mutation, room)] = (mutation, time.monotonic() + limit_seconds)
        time.sleep(0.05)
        for process, (mutation, deadline) in list(running.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if not ended and time.monotonic() > deadline:
                os.kill(process, 9)
                os.waitpid(process, 0)
                ended, status, outcome = process, 1, "timeout"
            else:
                outcome = "survived" if status == 0 else "killed"
            if ended:
                del running[process]
                outcomes.append((mutation, outcome))
                print(f"{len(outcomes):4d}/{len(chosen)} {outcome:8s} {mutation}", flush=True)
    return outcomes


# --- The account -----------------------------------------------------------------------------------


def known_equivalents() -> dict[str, str]:
    """Reasons by mutation key; lines are `key | reason`, and # begins a comment."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.is_file() else []
    pairs = [line.rpartition(" | ") for line in lines if line.strip() and not line.startswith("#")]
    return {key.strip(): reason.strip() for key, _, reason in pairs}


def main() -> int:
    """List, choose, run, account."""
    args = _arguments()
    files = [path for path in sorted((ROOT / "tokenweight" / args.room).glob("*.py")) if path.name not in SKIPPED_FILES]
    every = [m for path in files if args.only in (None, path.name) for m in mutations(path)]
    chosen = every if args.sample is None else random.Random(args.seed).sample(every, min(args.sample, len(every)))
    if args.list:
        print("\n".join(map(str, chosen)))
        return 0
    _load_once(args.room)
    with tempfile.TemporaryDirectory(prefix="mutate-") as os.environ["TMPDIR"]:  # of tests that are killed too
        return _try(every, chosen, args)


def _try(every: list[Mutation], chosen: list[Mutation], args: argparse.Namespace) -> int:
    """Run the tests without a mutation, then with each, and print the account; the exit code."""
    began = time.monotonic()
    _, status = os.waitpid(start(None, args.room), 0)
    if status != 0:
        print(f"the tests of {args.room} fail without any mutation: mend that first")
        return 2
    limit = max(30.0, args.limit_factor * (time.monotonic() - began))
    outcomes = run_all(chosen, args.room, args.jobs, limit)
    known = known_equivalents()
    survivors = [m for m, outcome in outcomes if outcome == "survived"]
    unexplained = [m for m in survivors if m.key not in known]
    counts = {
        "mutations": len(every),
        "tried": len(outcomes),
        "killed": len(outcomes) - len(survivors),
        "killed_by_timeout": sum(outcome == "timeout" for _, outcome in outcomes),
        "survived_equivalent": len(survivors) - len(unexplained),
        "survived_unexplained": len(unexplained),
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps(counts, indent=2))
    for mutation in survivors:
        print(f"survived: {mutation}  ({known.get(mutation.key, 'UNEXPLAINED')})")
    return 1 if unexplained else 0


def _load_once(room: str) -> None:
    """Import what every run needs and no mutation touches."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    import hypothesis
    import pydantic
    import pytest
    from transformers import LlamaForCausalLM, PhiForCausalLM, Trainer, TrainingArguments

    assert all((hypothesis, pydantic, pytest, LlamaForCausalLM, PhiForCausalLM, Trainer, TrainingArguments))
    assert not any(name.startswith(f"tokenweight.{room}.") for name in sys.modules)
    gc.freeze()  # collections in the forks need not walk through torch and transformers: half of a run


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", choices=ROOMS, default="weighting")
    parser.add_argument("--sample", type=int, help="try so many, chosen at random (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--only", help="one file of the room, such as windows.py")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit-factor", type=float, default=10, help="times an unmutated run until a timeout")
    parser.add_argument("--list", action="store_true", help="print the mutations and run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
