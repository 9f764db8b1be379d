"""Progress of long work in a terminal: a bar with the time left; elsewhere a line now and then. All on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from tokenweight.progress import Progress

LINE_SECONDS = 30.0


@contextmanager
def console_progress() -> Iterator[Progress]:
    """A Progress for work in this process; each `what` has its own bar, and its own time left."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Bars(*columns, console=console) as bars:
        tasks = {}

        def report(done: float, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report


def _lines(console: Console) -> Progress:
    began: dict[str, tuple[float, float]] = {}  # when the first number came, and which it was
    last = time.monotonic()

    def report(done: float, total: int, what: str) -> None:
        nonlocal last
        now = time.monotonic()
        start, before = began.setdefault(what, (now, done))
        if now - last < LINE_SECONDS:
            return
        last = now
        left = f", about {(now - start) / (done - before) * (total - done):.0f} s left" if done > before else ""
        console.print(f"{what}: {int(done)} of {total}{left}", highlight=False, soft_wrap=True)

    return report
