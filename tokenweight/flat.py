"""A user's choices as flat parameters: what is described once, by pydantic models, for the command line and for flows.

A nested object in a deployment's form would reset its other fields where one of them is changed, so forms are flat.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Optional, TypeVar, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

T = TypeVar("T")


class Part:
    """Some fields of a model: `Annotated[dict[str, Any], Part(Execution, "device")]` takes those that the user gave.

    `Annotated[Inputs, Part(Inputs, "mmlu")]` takes the model, with defaults for the other fields.
    """

    def __init__(self, model: type[BaseModel], *names: str) -> None:
        self.model, self.names = model, names


@dataclass(frozen=True)
class _Group:
    """One parameter of a function, and the fields that take its place."""

    model: type[BaseModel]
    names: tuple[str, ...]
    as_model: bool

    def parameters(self) -> list[inspect.Parameter]:
        return [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=self.model.model_fields[name].default if self.as_model else None,
                annotation=self._annotation(self.model.model_fields[name]),
            )
            for name in self.names
        ]

    def _annotation(self, field: FieldInfo) -> Any:
        bounded: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        if self.as_model:
            return Annotated[bounded, Field(description=field.description)]
        return Annotated[Optional[bounded], Field(description=f"{field.description}. Default: the scale's own")]  # noqa: UP045

    def value(self, given: Mapping[str, Any]) -> Any:
        """The function's own parameter, from flat values."""
        if self.as_model:
            return self.model(**given)
        return {name: value for name, value in given.items() if value is not None}


def flat(function: Callable[..., T]) -> Callable[..., T]:
    """Replace each parameter that is a model, or a `Part` of one, by its fields, keywords with their descriptions.

    The docstring gets `Args:`, where Prefect's forms and the command line find descriptions. TypeError where a parameter
    has none.
    """
    own = inspect.signature(function, eval_str=True).parameters
    groups = {name: group for name, parameter in own.items() if (group := _group(parameter.annotation))}
    every = [parameter for name, parameter in own.items() if name not in groups]
    every += [parameter for group in groups.values() for parameter in group.parameters()]

    @wraps(function)
    def run(*arguments: Any, **given: Any) -> T:
        for name, group in groups.items():
            given[name] = group.value({field: given.pop(field) for field in group.names if field in given})
        return function(*arguments, **given)

    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    lines = [f"    {parameter.name}: {_description(function, parameter)}" for parameter in every]
    run.__doc__ = f"{inspect.getdoc(function)}\n\nArgs:\n" + "\n".join(lines) + "\n"
    return run


def _group(annotation: Any) -> _Group | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _Group(annotation, tuple(annotation.model_fields), as_model=True)
    if get_origin(annotation) is not Annotated:
        return None
    kind, *more = get_args(annotation)
    parts = [item for item in more if isinstance(item, Part)]
    return _Group(parts[0].model, parts[0].names, as_model=kind is parts[0].model) if parts else None


def _description(function: Callable[..., Any], parameter: inspect.Parameter) -> str:
    texts = [item.description for item in get_args(parameter.annotation)[1:] if isinstance(item, FieldInfo)]
    if not texts or not texts[-1]:
        raise TypeError(f"{function.__name__}: parameter {parameter.name} has no description")
    return texts[-1]
