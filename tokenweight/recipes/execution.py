"""How each scale runs where nothing else is said. Never part of a fingerprint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from tokenweight.errors import UserError
from tokenweight.recipes.cited import assignments, one_line, parse
from tokenweight.recipes.launch_check import check_combination, check_installed
from tokenweight.recipes.scales import of_scale
from tokenweight.recipes.schema import Execution, Scale


def default_execution(scale: Scale) -> Execution:
    """The execution of a scale: smoke inline on what is there, paper as in Appendix B."""
    return Execution.model_validate(of_scale(scale)["execution"])


def execution_for(scale: Scale, settings: Iterable[str] = (), **given: Any) -> Execution:
    """The scale's execution with what the user gave in place.

    `settings`: key=value of any field, values as JSON where they are JSON. Raises UserError for an unknown field, for
    values that do not fit each other, and for packages and GPUs that are not there.
    """
    execution = planned_execution(scale, settings, **given)
    check_installed(execution)
    if execution.device == "cuda":
        import torch

        seen = torch.cuda.device_count()
        if seen < execution.processes_per_node:
            raise UserError(
                f"device cuda: {execution.processes_per_node} GPUs are needed, torch sees {seen}; "
                "run where they are, or give --device and --processes"
            )
    return execution


def planned_execution(scale: Scale, settings: Iterable[str] = (), **given: Any) -> Execution:
    """As `execution_for`, for a plan: does not ask what is installed here and for GPUs."""
    assigned = {key: parse(value) for key, value in assignments("--execution", settings).items()}
    changes = {**assigned, **{key: value for key, value in given.items() if value is not None}}
    try:
        execution = Execution.model_validate({**default_execution(scale).model_dump(), **changes})
    except ValidationError as error:
        raise UserError(f"execution.{one_line(error)}; `--execution` takes the fields of Execution") from None
    check_combination(execution)
    return execution
