"""The command `tokenweight reproduce`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.commands.command import command
from tokenweight.commands.experiments import make_and_show
from tokenweight.commands.showing import note
from tokenweight.pipeline.opened import open_store
from tokenweight.recipes.execution import execution_for, planned_execution
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import (
    Choices,
    ExecutionOption,
    ExperimentsOption,
    RunOptions,
    ScaleOption,
    SeedsOption,
)

if TYPE_CHECKING:
    from tokenweight.flows.pool import Pool


@command
def reproduce(
    experiments: ExperimentsOption,
    /,
    *,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    options: RunOptions,
    choices: Choices,
    execution: ExecutionOption = (),
) -> None:
    """Run what is missing and write the tables."""
    from tokenweight.tasks.experiments import plan_texts

    place = open_store(options.store)
    wanted, left_out = plan_texts(experiments, scale, inputs, place, seeds)
    note(*left_out)
    chosen = partial(planned_execution if options.pool else execution_for, wanted[0].like, execution, **choices)
    given = {"scale": scale, "seeds": seeds, "execution": execution, **choices, **inputs.model_dump()}
    make_and_show(wanted, place, options, chosen, pool=pool_of(options, experiments, given))


def pool_of(options: RunOptions, experiments: list[str], parameters: dict[str, Any]) -> Pool | None:
    """Where models run, and the parameters of the flow `reproduce` there; a file by its full path."""
    if options.pool is None:
        return None
    from tokenweight.flows.pool import Pool

    texts = [str(Path(text).resolve()) if text.endswith((".yaml", ".yml")) else text for text in experiments]
    return Pool.of(options, {"experiment": " ".join(texts), **parameters})
