"""From what a user names to planned experiments, and from their records to tables. Loads no torch and no Prefect."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tokenweight.pipeline import Store
from tokenweight.pipeline.archive import check_place, write_records
from tokenweight.pipeline.manifest import keep_manifest, with_failures
from tokenweight.planning.experiments import PlannedExperiment, plan_experiments
from tokenweight.recipes import Inputs
from tokenweight.reports.model import Report
from tokenweight.reports.targets import ALL
from tokenweight.reports.targets.find import find_experiments
from tokenweight.reports.writing import write_results

Written = tuple[Report, dict[str, Path]]  # a table, and its files by kind
PACKED_EVERY_SECONDS = 60.0


def plan_texts(
    texts: Sequence[str], scale: str, inputs: Inputs, store: Store, seeds: int | None = None
) -> tuple[list[PlannedExperiment], list[str]]:
    """Every experiment that the texts name, planned; and what is left out, a line each.

    Raises:
        UserError: a text is no experiment, or an input does not fit it.
    """
    found, left_out = find_experiments(texts, scale, inputs, seeds)
    planned, without_text = plan_experiments(found, store, skip_without_text=ALL in texts)
    return planned, [*left_out, *without_text]


def write_tables(
    planned: PlannedExperiment,
    store: Store,
    out: Path,
    figures: bool = True,
    failed: Mapping[str, str] | None = None,
) -> Written:
    """The table, its figures and the manifest, which says why recipes failed; see :func:`write_results`."""
    manifest = with_failures(planned.manifest, failed or {})
    written = write_results(manifest, store.root, out, figures=figures)
    keep_manifest(manifest, store.root)
    return written


@contextmanager
def packed_as_it_goes(store: Path, file: Path | None) -> Iterator[None]:
    """Pack a store's records into `file` every minute and at the end, for machines that keep nothing.

    UserError where it cannot be written there.
    """
    ended = threading.Event()

    def pack() -> None:
        while file and not ended.wait(PACKED_EVERY_SECONDS):
            write_records(store, file)

    if file:
        check_place(store, file)
    thread = threading.Thread(target=pack, name="records", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if file:
            write_records(store, file)
