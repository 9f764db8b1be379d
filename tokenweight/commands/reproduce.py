"""The command `tokenweight reproduce`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.experiments import make_and_show
from tokenweight.commands.options import results_directory
from tokenweight.commands.showing import note
from tokenweight.pipeline.opened import open_store
from tokenweight.recipes.execution import execution_for, planned_execution
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import (
    RESULTS,
    STORE,
    Choices,
    ExecutionOption,
    ExperimentsOption,
    FiguresOption,
    OutOption,
    PoolOption,
    RecordsOption,
    ScaleOption,
    SecondsOption,
    SeedsOption,
    StoreOption,
)

if TYPE_CHECKING:
    from tokenweight.flows.pool import Pool

AtOnceOption = Annotated[int, Field(ge=1, le=200, description="Number of models that run in the pool at the same time")]


@command
def reproduce(
    experiments: ExperimentsOption,
    /,
    *,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    pool: PoolOption = None,
    at_once: AtOnceOption = 4,
    seconds: SecondsOption = None,
    records: RecordsOption = None,
    choices: Choices,
    execution: ExecutionOption = (),
    figures: FiguresOption = True,
) -> None:
    """Run what is missing and write the tables."""
    from tokenweight.tasks.experiments import plan_texts

    place, directory = open_store(store), results_directory(out)
    wanted, left_out = plan_texts(experiments, scale, inputs, place, seeds)
    note(*left_out)
    chosen = partial(planned_execution if pool else execution_for, wanted[0].like, execution, **choices)
    given = {"scale": scale, "seeds": seeds, "execution": execution, **choices, **inputs.model_dump()}
    make_and_show(
        wanted, place, directory, chosen, figures=figures, seconds=seconds, records=records,
        pool=pool_of(pool, at_once, experiments, given),
    )  # fmt: skip


def pool_of(name: str | None, at_once: int, experiments: list[str], parameters: dict[str, Any]) -> Pool | None:
    """Where models run, and the parameters of the flow `reproduce` there; a file by its full path."""
    if name is None:
        return None
    from tokenweight.flows.pool import Pool

    texts = [str(Path(text).resolve()) if text.endswith((".yaml", ".yml")) else text for text in experiments]
    return Pool(name, at_once, {"experiment": " ".join(texts), **parameters})
