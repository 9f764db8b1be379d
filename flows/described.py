"""Descriptions of a flow's parameters, where Prefect looks for them: in its docstring, not in its annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_args

from pydantic.fields import FieldInfo

Function = TypeVar("Function", bound=Callable[..., Any])


def described(function: Function) -> Function:
    """Add `Args:` to the docstring, from `Annotated[..., Field(description=...)]`; put it below `@flow`.

    The form of a deployment shows descriptions from there alone. TypeError for a parameter without one.
    """
    lines = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        fields = [item for item in get_args(parameter.annotation)[1:] if isinstance(item, FieldInfo)]
        texts = [field.description for field in fields if field.description]
        if not texts:
            raise TypeError(f"{function.__name__}: parameter {name} has no description")
        lines.append(f"    {name}: {texts[-1]}")
    function.__doc__ = f"{inspect.getdoc(function)}\n\nArgs:\n" + "\n".join(lines) + "\n"
    return function
