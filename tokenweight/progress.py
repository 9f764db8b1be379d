"""How long stages report where they are, without knowing who listens."""

from collections.abc import Callable

Progress = Callable[[int, int, str], None]  # (done, total, what is counted)


def no_progress(done: int, total: int, what: str) -> None:
    """Report to nobody."""
