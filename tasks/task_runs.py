"""What Prefect has of a run: the task run of a piece, and as artifacts the progress of long stages, tables and figures.

It carries no data: the store decides about reuse, and what people see on a server are copies of files and records.
"""

import contextvars
import logging
import os
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.settings import get_current_settings
from prefect.states import Cancelled, Completed

from tokenweight.pipeline.stage import Identity
from tokenweight.pipeline.store import Note, Store
from tokenweight.progress import Progress
from tokenweight.tasks.slots import Interrupted
from tokenweight.tasks.worker import OutOfMemory
from tokenweight.training.launch import VARIABLE, Stopped
from tokenweight.webpage import plain_environment

INTERVAL_SECONDS = 10.0
LARGEST_PICTURE_BYTES = 500_000  # it is kept in the server's database; a larger one is only linked


def has_server() -> bool:
    """Whether this run reports to a server that outlives it; the embedded one ends with the run."""
    return get_current_settings().api.url is not None


def publish(
    key: str,
    title: str,
    files: Mapping[str, Path],
    store: Store | None = None,
    behind: Mapping[str, Identity] | None = None,
) -> None:
    """Show a table on the server, with its files, its store and the checkpoints `behind` its rows, and its figures.

    `key`: what Prefect does not take in one (it takes lowercase letters, digits and dashes) becomes dashes. Links are file:
    addresses, for a browser where the store is.
    """
    if not has_server():
        return
    key = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")
    made = [(row, one) for row, one in (behind or {}).items() if store and store.path(one).is_dir()]
    templates = plain_environment(Path(__file__).parent)
    templates.filters["base64"] = lambda path: b64encode(path.read_bytes()).decode()
    table = templates.get_template("table.md.jinja").render(files=files, store=store, made=made)
    create_markdown_artifact(table, key=key, description=f"{title}; file: {files['md']}")
    if pictures := [path for name, path in files.items() if name.endswith("png")]:
        shown = templates.get_template("figures.md.jinja").render(pictures=pictures, most_bytes=LARGEST_PICTURE_BYTES)
        create_markdown_artifact(shown, key=f"{key}-figures", description=f"Figures of {title}")


@contextmanager
def progress_of(label: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """A Progress for the current task run: at most a line and an update every 10 s, nothing of what ends before.

    A server that outlives the run gets an artifact, by a thread of its own: one that is away neither stops nor ends a
    stage. What comes while an update is on its way is dropped; the next one tells more.
    """
    shown, logger, last = has_server(), get_run_logger(), clock()
    began: dict[str, tuple[float, float]] = {}  # when each count first came, and what it was: not 0 in a resumed stage
    artifacts: list[UUID] = []  # the one, once it is made
    sent: list[Future[None]] = []  # the last update
    sender = ThreadPoolExecutor(1, thread_name_prefix="progress")

    def write(percent: float, text: str) -> None:
        description = f"{label}: {text}"
        try:
            if artifacts:
                update_progress_artifact(artifacts[0], percent, description=description)
            else:
                artifacts.append(create_progress_artifact(percent, description=description))  # type: ignore[arg-type]
        except Exception as error:  # whatever a server or its proxy answers, a stage continues
            logging.getLogger(__name__).debug("no progress shown: %s", error)

    def show(percent: float, text: str) -> None:
        if shown and all(update.done() for update in sent):
            # Prefect takes the run that an artifact belongs to from its context
            sent[:] = [sender.submit(contextvars.copy_context().run, write, percent, text)]

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
        show(100.0 * min(done, total) / total, text)

    try:
        yield report
        if sent:
            wait(sent, INTERVAL_SECONDS)
            show(100.0, "done")
            wait(sent, INTERVAL_SECONDS)
    finally:
        sender.shutdown(wait=False)


Run = Callable[[Note, Progress], int]  # makes a piece; how many artifacts were made


def is_transient(_task: object, _run: object, state: State[Any]) -> bool:
    """Whether a new worker may do better: it gets one try."""
    return isinstance(state.result(raise_on_failure=False), OutOfMemory)


@task(task_run_name="{label}", cache_policy=NO_CACHE, persist_result=False, retries=1, retry_condition_fn=is_transient)
def make(label: str, reason: str, run: Run | None) -> State[Any]:
    """Make a piece by `run`; without it everything is reused, for this reason."""
    if run is None:
        return Completed(name="Reused", message=reason, data=0)
    note = get_run_logger().info
    try:
        with progress_of(label) as progress:
            made = run(note, progress)
    except Interrupted as interrupted:
        return Cancelled(message=str(interrupted))
    except Stopped as stopped:
        stop_file = os.environ.get(VARIABLE)
        if stop_file is None or "PREFECT__FLOW_RUN_ID" not in os.environ:  # a command of a user's own, which ends
            raise
        # As the job's script asked. Raised, it would make the flow run a failed one, which nothing runs again.
        note(f"{stopped} The job goes back into Slurm's queue.")
        logging.shutdown()
        Path(f"{stop_file}.obeyed").touch()
        os._exit(0)
    return Completed(name="Completed" if made else "Reused", message=f"artifacts made: {made}", data=made)
