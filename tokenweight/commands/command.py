"""From a function with described parameters to a command of cyclopts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

from cyclopts import Parameter

from tokenweight.flat import flat

# Options whose parameter has another name: a word of Python, or a plural.
_OPTIONS = {
    "settings": "set",
    "as_json": "json",
    "lambda_": "lambda",
    "everything": "all",
    "complete": "whole",
    "models": "model",
    "members": "member",
    "context_tokens": "context",
}


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function's parameters flat, and name its options: positional-only parameters are arguments.

    `--no-...` is only for what is on by default.
    """
    run, described = flat(function), []
    for parameter in inspect.signature(run).parameters.values():
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            name = _OPTIONS.get(parameter.name, parameter.name).replace("_", "-")
            negative = f"--no-{name}" if parameter.default is True else ()
            shown = parameter.default not in (False, (), None)
            option = Parameter(f"--{name}", negative=negative, show_default=shown)
            parameter = parameter.replace(annotation=Annotated[parameter.annotation, option])
        described.append(parameter)
    run.__signature__ = inspect.Signature(described)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in described}
    return run
