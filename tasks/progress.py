"""Progress of long stages: a line in the log and a Prefect progress artifact, both at most every few seconds."""

from __future__ import annotations

import time
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.logging import get_run_logger

from tokenweight.progress import Progress

INTERVAL_SECONDS = 10.0


def reporter(label: str) -> Progress:
    """A Progress for the current task run; stages that end within the interval report nothing."""
    logger = get_run_logger()
    started = last = time.monotonic()
    artifact: UUID | None = None

    def report(done: float, total: int, what: str) -> None:
        nonlocal last, artifact
        now = time.monotonic()
        if now - last < INTERVAL_SECONDS or total <= 0:
            return
        last = now
        percent = 100.0 * done / total
        left = (now - started) / done * (total - done) if done else None
        ahead = f", about {left:.0f} s left" if left is not None and not what.endswith(" left") else ""
        logger.info("%s: %d of %d %s%s", label, done, total, what, ahead)
        if artifact is None:
            created = create_progress_artifact(percent, description=f"{label}: {what.partition(':')[0]}")
            artifact = created if isinstance(created, UUID) else None
        else:
            update_progress_artifact(artifact, percent)

    return report
