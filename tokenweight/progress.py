"""How long stages report where they are, without knowing who listens."""

from collections.abc import Callable

Progress = Callable[[float, int, str], None]  # (done, total, what is counted); part of a thing may be done


def counted(number: int, noun: str) -> str:
    """ "1 artifact", "2 artifacts"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def no_progress(done: float, total: int, what: str) -> None:
    """Report to nobody."""
