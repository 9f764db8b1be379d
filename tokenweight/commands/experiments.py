"""What the commands that make results share: check all of it, run what is missing, print the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.commands.options import run_flow
from tokenweight.commands.showing import note, show

if TYPE_CHECKING:
    from tokenweight.pipeline import Store
    from tokenweight.planning.experiments import PlannedExperiment
    from tokenweight.recipes.schema import Execution
    from tokenweight.tasks.experiments import Written


def make_and_show(
    wanted: Sequence[PlannedExperiment],
    store: Store,
    out: Path,
    execution: Callable[[], Execution],
    *,
    figures: bool = True,
    as_json: bool = False,
    records: Path | None = None,
    **given: Any,
) -> None:
    """Run what the store lacks, all checked before, and print every table, also where others failed.

    `execution` is asked for where something is to be made; `given`: see `tokenweight.flows.reproduce.run_experiments`.
    """
    from tokenweight.planning.plan import check_before_running, check_inputs, schedule
    from tokenweight.tasks.experiments import write_tables
    from tokenweight.tasks.records import packed_as_it_goes

    graphs = [planned.graph for planned in wanted]
    for graph in graphs:
        check_inputs(graph)
    plans = [schedule(graph, store) for graph in graphs]
    if all(entry.action == "reuse" for plan in plans for entry in plan):
        count, names = len({entry.artifact for plan in plans for entry in plan}), ", ".join(one.name for one in wanted)
        say = note if as_json else print
        say(f"All {count} artifacts of {names} ({wanted[0].resolved.scale}) are in the store: nothing to run.")
        with packed_as_it_goes(store.root, records):
            for planned in wanted:
                show(*write_tables(planned, store, out, figures), as_json=as_json)
        return
    chosen = execution()
    check_before_running(graphs, store, chosen, plans)
    written: dict[str, Written] = {}
    try:
        run_flow(
            store.root, "reproduce:run_planned", wanted=wanted, store=store, execution=chosen, out=out,
            figures=figures, records=records, written=written, **given,
        )  # fmt: skip
    finally:
        for report, files in written.values():
            show(report, files, as_json=as_json)
