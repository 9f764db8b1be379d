"""Each table and figure of the paper as data: a YAML file here, of the form that a user's own has."""

from functools import cache
from pathlib import Path

from tokenweight.errors import UserError, choose
from tokenweight.reports.targets.schema import ExperimentSpec, read_experiment

ALL = "paper"  # the name of all targets together of the paper
# A file here is a target by its name: tables and figures in the paper's order, then the others.
TARGETS = tuple(
    sorted(
        {file.stem for file in Path(__file__).parent.glob("*.yaml")} - {"columns"},
        key=lambda name: (not name.startswith("table-"), not name.startswith("figure-"), len(name), name),
    )
)


@cache
def get_target(name: str) -> ExperimentSpec:
    """The target of that name; UserError for an unknown one."""
    if name == "table-6":
        raise UserError(
            "target 'table-6': is measured on GPUs, not made from recipes; run benchmarks/training_cost.py --out FILE.json, "
            "then `tokenweight runtimes FILE.json`"
        )
    if name not in TARGETS:
        raise UserError(f"target {name!r}: unknown{choose(name, (*TARGETS, ALL, 'a file like my.yaml'))}")
    with read_experiment(str(Path(__file__).parent / f"{name}.yaml")) as spec:
        return spec
