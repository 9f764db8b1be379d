"""A flow that does nothing, for as long as a file is absent: what the tests of the worker run."""

import time
from pathlib import Path

from prefect import flow


@flow(name="wait", persist_result=False)
def wait(until: str, note: str | None = None) -> None:
    """Leave a line in the file `note`, then wait until the file `until` is there."""
    if note is not None:
        with Path(note).open("a") as lines:
            lines.write("begun\n")
    while not Path(until).exists():
        time.sleep(0.2)
