"""Models as flat parameters, and flat values back as models."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from tokenweight.flat import TEXTS, Part, flat
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import RunOptions
from tokenweight.recipes.schema import Execution


@flat
def run(
    experiment: str,
    *,
    inputs: Inputs,
    choices: Annotated[dict[str, Any], Part(Execution, "device", "processes", given_only=True)],
) -> tuple[str, Inputs, dict[str, Any]]:
    """Run it."""
    return experiment, inputs, choices


def test_flat_values_come_back_as_the_models() -> None:
    given = Inputs(corpus="books", settings=("training.steps=3",))
    flat_values = {"device": "cpu", **given.model_dump()}
    assert run("table-3", **flat_values) == ("table-3", given, {"device": "cpu"})
    assert run("table-3") == ("table-3", Inputs(), {})
    assert run("table-3", corpus="", processes=None) == ("table-3", Inputs(), {})  # a form sends empty text


def test_a_forms_empty_path_is_not_the_working_directory() -> None:
    kind = next(one.annotation for one in Part(RunOptions, "records").parameters())
    assert TypeAdapter(kind).validate_python("") is None
    assert RunOptions(records="").records is None  # type: ignore[arg-type]


def test_the_signature_has_each_field_once_with_its_description_and_bounds() -> None:
    parameters = inspect.signature(run).parameters
    assert list(parameters) == ["experiment", *Inputs.model_fields, "device", "processes"]
    for name, text in TEXTS["Inputs"].items():
        assert f"    {name}: {text}" in (run.__doc__ or "")
    assert "    device: Device that models run on; auto: a GPU where there is one. Default: the scale's" in (
        run.__doc__ or ""
    )
    processes = TypeAdapter(parameters["processes"].annotation)
    assert processes.validate_python(None) is None
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        processes.validate_python(0)


@pytest.mark.parametrize("model", [Inputs, Execution])
def test_every_field_of_a_users_choices_is_described(model: type[BaseModel]) -> None:
    assert [name for name in model.model_fields if not TEXTS[model.__name__].get(name)] == []


def test_a_parameter_without_a_description_is_refused() -> None:
    def undescribed(colour: str) -> None:
        """Run."""

    with pytest.raises(TypeError, match="colour has no description"):
        flat(undescribed)


def test_a_name_is_given_once() -> None:
    def twice(store: str, options: RunOptions) -> None:
        """Run."""

    with pytest.raises(ValueError, match="duplicate parameter name"):
        flat(twice)
