"""What the commands that make results share: check all of it, run what is missing, print the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tokenweight.commands.options import results_directory, run_flow
from tokenweight.commands.showing import note, show
from tokenweight.recipes.options import RunOptions

if TYPE_CHECKING:
    from tokenweight.flows.pool import Pool
    from tokenweight.pipeline import Store
    from tokenweight.planning.experiments import PlannedExperiment
    from tokenweight.recipes.schema import Execution
    from tokenweight.tasks.experiments import Written


def make_and_show(
    wanted: Sequence[PlannedExperiment],
    store: Store,
    options: RunOptions,
    execution: Callable[[], Execution],
    *,
    as_json: bool = False,
    pool: Pool | None = None,
) -> None:
    """Run what the store lacks, all checked before, and print every table, also where others failed.

    `execution` is asked for where something is to be made.
    """
    from tokenweight.planning.plan import check_before_running, check_inputs, schedule
    from tokenweight.tasks.experiments import write_tables
    from tokenweight.tasks.records import packed_as_it_goes

    out, graphs = results_directory(options.out), [planned.graph for planned in wanted]
    for graph in graphs:
        check_inputs(graph)
    plans = [schedule(graph, store) for graph in graphs]
    if all(entry.action == "reuse" for plan in plans for entry in plan):
        count, names = len({entry.artifact for plan in plans for entry in plan}), ", ".join(one.name for one in wanted)
        say = note if as_json else print
        say(f"All {count} artifacts of {names} ({wanted[0].resolved.scale}) are in the store: nothing to run.")
        with packed_as_it_goes(store.root, options.records):
            for planned in wanted:
                show(*write_tables(planned, store, out, options.figures), as_json=as_json)
        return
    chosen = execution()
    check_before_running(graphs, store, chosen, plans)
    written: dict[str, Written] = {}
    try:
        run_flow(
            store.root, "reproduce:run_planned", wanted=wanted, store=store, execution=chosen, options=options,
            pool=pool, written=written,
        )  # fmt: skip
    finally:
        for report, files in written.values():
            show(report, files, as_json=as_json)
