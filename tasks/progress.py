"""Progress of long stages: a line in the log and, where a server shows it, a Prefect progress artifact with the time left."""

from __future__ import annotations

import contextvars
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.logging import get_run_logger

from tokenweight.progress import Progress
from tokenweight.tasks.publish import has_server

INTERVAL_SECONDS = 10.0


@contextmanager
def progress_of(label: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """A Progress for the current task run: at most a line and an update every 10 s, nothing of what ends before.

    The embedded server of a run without one gets no artifact: it ends with the run, and nobody looks at it.
    """
    bar, logger, last = _Bar(label, shown=has_server()), get_run_logger(), clock()
    began: dict[str, tuple[float, float]] = {}  # when each count first came, and what it was: not 0 in a resumed stage

    def report(done: float, total: int, what: str) -> None:
        nonlocal last
        now = clock()
        start, before = began.setdefault(what.partition(":")[0], (now, done))
        if now - last < INTERVAL_SECONDS or total <= 0:
            return
        last = now
        text = f"{int(done)} of {total} {what}"
        if not what.endswith(" left") and before < done < total:
            seconds = (now - start) / (done - before) * (total - done)
            text += f", about {seconds:.0f} s left" if seconds < 600 else f", about {seconds / 60:.0f} min left"
        logger.info("%s", text)
        bar.show(100.0 * min(done, total) / total, text)

    try:
        yield report
        bar.fill()
    finally:
        bar.sender.shutdown(wait=False)


class _Bar:
    """A progress artifact, written by a thread of its own: a server that is away neither stops nor ends a stage.

    What comes while an update is on its way is dropped; the next one tells more.
    """

    def __init__(self, label: str, *, shown: bool) -> None:
        self.sender = ThreadPoolExecutor(1, thread_name_prefix="progress")
        self._label, self._shown = label, shown
        self._artifact: UUID | None = None
        self._sent: Future[None] | None = None

    def show(self, percent: float, text: str) -> None:
        """Create or update it, unless the last update is still on its way."""
        if self._shown and (self._sent is None or self._sent.done()):
            # Prefect takes the run that an artifact belongs to from its context
            self._sent = self.sender.submit(contextvars.copy_context().run, self._write, percent, text)

    def fill(self) -> None:
        """Full, where it was shown at all."""
        if self._sent is not None:
            wait([self._sent], INTERVAL_SECONDS)
            self.show(100.0, "done")
            wait([self._sent], INTERVAL_SECONDS)

    def _write(self, percent: float, text: str) -> None:
        description = f"{self._label}: {text}"
        try:
            if self._artifact:
                update_progress_artifact(self._artifact, percent, description=description)
            else:
                self._artifact = create_progress_artifact(percent, description=description)  # type: ignore[assignment]
        except Exception as error:  # whatever a server or its proxy answers, a stage goes on
            logging.getLogger(__name__).debug("no progress shown: %s", error)
