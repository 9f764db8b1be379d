"""What the commands that make results share: check all of it, run what is missing, print the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight import embedded
from tokenweight.commands.showing import note, show
from tokenweight.errors import UserError
from tokenweight.recipes.options import RunOptions

if TYPE_CHECKING:
    from tokenweight.flows.pool import Pool
    from tokenweight.pipeline import Store
    from tokenweight.planning.experiments import PlannedExperiment
    from tokenweight.recipes.schema import Execution
    from tokenweight.tasks.experiments import Written


def results_directory(out: Path) -> Path:
    """Where results go; it need not exist yet."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is not a directory; choose another")
    return out.expanduser().resolve()


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
    from tokenweight.planning.plan import check_before_running, schedule
    from tokenweight.tasks.experiments import packed_as_it_goes, write_tables

    out, graphs = results_directory(options.out), [planned.graph for planned in wanted]
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
    check_before_running(graphs, store, chosen)
    written: dict[str, Written] = {}
    try:
        run_flow(
            "reproduce:run_planned", wanted=wanted, store=store, execution=chosen, options=options, pool=pool,
            written=written,
        )  # fmt: skip
    finally:
        for report, files in written.values():
            show(report, files, as_json=as_json)


def run_flow(flow: str, **parameters: Any) -> None:
    """Run a flow, `module:name` below tokenweight.flows, in this process; its errors are left to the command line."""
    embedded.prepare()
    from tokenweight.tasks.forking import warm_up

    warm_up()  # the workers' imports, beside Prefect's and its server's start
    from tokenweight.flows.console import leave_errors_to_caller

    module, _, name = flow.partition(":")
    run = getattr(import_module(f"tokenweight.flows.{module}"), name)
    leave_errors_to_caller()
    with embedded.ended_together():
        run(**parameters)
