"""Optional rooms: what a setting may ask for and the rest works without; nothing else imports them."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from tokenweight.errors import UserError

Function = TypeVar("Function", bound=Callable[..., Any])


def check_room(name: str, setting: str) -> None:
    """UserError where the package tokenweight.<name>, which `setting` asks for, was left out of the installation."""
    if find_spec(f"tokenweight.{name}") is None:
        raise UserError(f"{setting}: needs tokenweight/{name}, which is not installed; leave the setting out")


def optional_room(name: str, setting: str) -> Any:
    """The package tokenweight.<name>, which `setting` asks for; see :func:`check_room`."""
    check_room(name, setting)
    return import_module(f"tokenweight.{name}")


def by_parity(parity: str, function: Function) -> Function:
    """`function`, or with `parity: authors` the one of the same name that follows the authors' public code."""
    if parity == "paper":
        return function
    theirs: Function = getattr(optional_room("authors_compat", "parity"), function.__name__)
    return theirs
