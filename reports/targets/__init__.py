"""Each table and figure of the paper: which recipes are its rows, which measures its columns."""

from __future__ import annotations

from tokenweight.errors import UserError
from tokenweight.reports.targets import ablations, main_results, phrase, planted, pmi, ruler_tasks
from tokenweight.reports.targets.model import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        phrase.TABLE_1,
        main_results.TABLE_3,
        ablations.TABLE_4,
        ablations.TABLE_5,
        ablations.TABLE_7,
        main_results.TABLE_8,
        main_results.TABLE_9,
        main_results.TABLE_10,
        ablations.TABLE_11,
        ablations.FIGURE_1,
        ablations.FIGURE_2,
        pmi.FIGURE_3,
        ablations.FIGURE_4,
        ablations.FIGURE_5,
        planted.PLANTED,
        ruler_tasks.RULER_TASKS,
    )
}


def get_target(name: str) -> Target:
    """The target of that name; UserError for an unknown one."""
    if name == "table-6":
        raise UserError(
            "target 'table-6': is measured on GPUs, not run from recipes; run benchmarks/training_cost.py --out FILE.json, "
            "then `tokenweight runtimes FILE.json`"
        )
    if name not in TARGETS:
        raise UserError(f"target {name!r}: not known; use one of {', '.join(TARGETS)}")
    return TARGETS[name]
