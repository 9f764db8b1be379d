"""A user's choices as flat parameters: what pydantic models and options.toml say once, for commands and flows.

A nested object in a deployment's form would reset its other fields where one of them is changed, so forms are flat.
"""

import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from tokenweight.errors import UserError

T = TypeVar("T")
TEXTS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("options.toml").read_text("utf-8"))


class Part:
    """Some fields of a model: `Annotated[Inputs, Part(Inputs, "mmlu")]` takes it with defaults for the others.

    `Annotated[dict[str, Any], Part(Execution, "device", given_only=True)]` takes those alone that the user gave.
    """

    def __init__(self, model: type[BaseModel], *names: str, given_only: bool = False) -> None:
        self.model, self.names, self.given_only = model, names or tuple(model.model_fields), given_only

    def parameters(self) -> Iterator[inspect.Parameter]:
        """A keyword for each field, with its bounds."""
        for name in self.names:
            field = self.model.model_fields[name]
            kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
            kind, default = (Optional[kind], None) if self.given_only else (kind, field.default)  # noqa: UP045
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)

    def texts(self) -> dict[str, str]:
        """What people read of each field."""
        more = ". Default: the scale's" if self.given_only else ""
        texts = {
            name: text for kind in reversed(self.model.__mro__) for name, text in TEXTS.get(kind.__name__, {}).items()
        }
        return {name: texts[name] + more for name in self.names if name in texts}

    def value(self, given: Mapping[str, Any]) -> Any:
        """The function's own parameter, from flat values."""
        if self.given_only:
            return {name: value for name, value in given.items() if value is not None}
        try:
            return self.model(**given)
        except ValidationError as error:
            first = error.errors()[0]
            option = ".".join(map(str, first["loc"])).replace("_", "-")
            raise UserError(f"--{option}: {first['msg']} (got {first['input']!r})") from None


def flat(function: Callable[..., T]) -> Callable[..., T]:
    """Replace each parameter that is a model, or a `Part` of one, by its fields as keywords.

    The docstring gets `Args:`, where Prefect's forms and the command line find descriptions: those of options.toml.
    TypeError where a parameter has none.
    """
    own = inspect.signature(function, eval_str=True).parameters
    parts = {name: part for name, parameter in own.items() if (part := _part(parameter.annotation))}
    every = [parameter for name, parameter in own.items() if name not in parts]
    of_flow = "flow " if ".flows." in function.__module__ else ""
    texts = {**TEXTS["shared"], **TEXTS.get(f"{of_flow}{function.__name__}", {})}
    for part in parts.values():
        every += part.parameters()
        texts |= part.texts()
    if undescribed := [parameter.name for parameter in every if parameter.name not in texts]:
        raise TypeError(f"{function.__name__}: parameter {undescribed[0]} has no description")

    @wraps(function)
    def run(*arguments: Any, **given: Any) -> T:
        for name, part in parts.items():
            given[name] = part.value({field: given.pop(field) for field in part.names if field in given})
        return function(*arguments, **given)

    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    lines = [f"    {parameter.name}: {texts[parameter.name]}" for parameter in every]
    run.__doc__ = f"{inspect.getdoc(function) or ''}\n\nArgs:\n" + "\n".join(lines) + "\n"
    return run


def _part(annotation: Any) -> Part | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return Part(annotation)
    return next((item for item in get_args(annotation) if isinstance(item, Part)), None)
