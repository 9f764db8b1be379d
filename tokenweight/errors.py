"""Errors that a user can mend: shown as one line, exit code 2, never a traceback."""

import re
from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Bad input: the message names the field or file, what is wrong, and what to do."""


class StageError(RuntimeError):
    """A stage could not finish for a reason that is not the user's input (exit code 1)."""


def nearest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?" where a known name is much like it, and has the same numbers."""
    alike = [one for one in known if re.sub(r"\D", "", one) == re.sub(r"\D", "", name)]
    close = get_close_matches(name, alike, n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ""


def choose(name: str, known: Iterable[str]) -> str:
    """What to do about an unknown name: take the nearest, or any of those that are known."""
    every = list(known)
    return nearest(name, every) or f"; choose one of {', '.join(every)}"


_OF_THE_HUB = {
    "GatedRepoError": "it is gated, and this account has no access",
    "RepositoryNotFoundError": "the hub has no such repository, or it is private",
    "RevisionNotFoundError": "the hub has no such revision of it",
    "LocalEntryNotFoundError": "offline, or the hub did not answer",
    "ConnectionError": "the hub did not answer",
}


def hub_reason(error: Exception) -> str:
    """Why the hub's client gave nothing, in words; of an error that it seldom raises the name of its class."""
    return next(
        (_OF_THE_HUB[kind.__name__] for kind in type(error).mro() if kind.__name__ in _OF_THE_HUB), type(error).__name__
    )
