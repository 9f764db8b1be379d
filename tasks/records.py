"""The store's records packed as a run goes, for machines that keep nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenweight.pipeline.archive import check_place, write_records

EVERY_SECONDS = 60.0


@contextmanager
def packed_as_it_goes(store: Path, file: Path | None) -> Iterator[None]:
    """Pack the records of a store into `file` every minute and at the end. UserError: it cannot be written there."""
    if file is None:
        yield
        return
    check_place(store, file)
    ended = threading.Event()

    def pack() -> None:
        while not ended.wait(EVERY_SECONDS):
            write_records(store, file)

    thread = threading.Thread(target=pack, name="records", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        write_records(store, file)
