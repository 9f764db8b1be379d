"""The flow `reproduce`: plan experiments, run what is missing, write their tables. Deployments are parameters of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from prefect import flow, runtime
from prefect.logging import get_run_logger

from tokenweight.errors import StageError
from tokenweight.flat import flat
from tokenweight.flows.pool import Pool, cancel_runs, run_in_pool
from tokenweight.flows.run import Outcome, run_graph
from tokenweight.pipeline import Store
from tokenweight.pipeline.store import open_store
from tokenweight.planning.experiments import PlannedExperiment, failures
from tokenweight.planning.plan import check_before_running
from tokenweight.recipes.execution import execution_for
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import Choices, RunOptions, Seeds
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.experiments import Written, plan_texts, write_tables
from tokenweight.tasks.publish import publish


def _run_name() -> str:
    """`table-3 smoke`; of an experiment's text its name; of one model of it, that too."""
    given = runtime.flow_run.parameters
    experiment = str(given["experiment"])
    if "\n" in experiment:
        named = re.search(r'^\s*"?name"?:\s*"?([a-z0-9-]+)', experiment, re.MULTILINE)
        experiment = named.group(1) if named else "experiment"
    return f"{experiment} {given['scale']}" + (f": {given['run']}" if given["run"] else "")


@flow(name="reproduce", flow_run_name=_run_name, persist_result=False, on_cancellation=[cancel_runs])
@flat
def reproduce(
    experiment: str,
    *,
    scale: str = "smoke",
    seeds: Seeds | None = None,
    run: str | None = None,
    inputs: Inputs,
    options: RunOptions,
    choices: Choices,
    execution: tuple[str, ...] = (),
) -> dict[str, dict[str, str]]:
    """Reproduce experiments: chunk, score, extend, train, evaluate, write tables; finished stages are reused.

    A model that fails does not stop the others; the run ends as failed after the tables are written. Returns the paths
    of what is written, by experiment and kind.
    """
    place = open_store(options.store)
    texts = [experiment] if "\n" in experiment else shlex.split(experiment)
    wanted, left_out = plan_texts(texts, scale, inputs, place, seeds)
    for line in left_out:
        get_run_logger().warning(line)
    # With a pool this machine trains nothing, so that its GPUs do not count.
    how = execution_for(wanted[0].like, execution, here=not options.pool, **choices)
    graphs = [wanted[0].graph_of(run, place)] if run else [planned.graph for planned in wanted]
    check_before_running(graphs, place, how)
    if run:
        run_graph(graphs, place, how).raise_failures()
        return {}
    given = {"scale": scale, "seeds": seeds, "execution": execution, **choices, **inputs.model_dump()}
    pool = Pool(options.pool, options.at_once, {"experiment": experiment, **given}) if options.pool else None
    return paths_of(run_experiments(wanted, place, how, options, pool))


def run_experiments(
    wanted: Sequence[PlannedExperiment],
    store: Store,
    execution: Execution,
    options: RunOptions,
    pool: Pool | None = None,
    written: dict[str, Written] | None = None,
) -> dict[str, Written]:
    """Within a flow: make what the store lacks of all experiments, the earlier first, and write each table.

    A row whose artifacts failed says why. `written`, by experiment, is filled also where this raises.

    Raises:
        UserError, StageError: what failed, all together, after the tables are written.
    """
    written = {} if written is None else written
    out = options.out.expanduser().resolve()
    outcome = Outcome()
    if pool:
        failed = {one.name: failures(one, run_in_pool(one, store, pool.for_one(one, wanted))) for one in wanted}
    else:
        graphs = [planned.graph for planned in wanted]
        outcome = run_graph(graphs, store, execution, seconds=options.seconds or float("inf"), records=options.records)
        failed = {planned.name: _failed_recipes(planned, outcome) for planned in wanted}
        get_run_logger().info("%d artifacts made, %d reused", outcome.made, outcome.reused)
    for planned in wanted:
        try:
            report, files = write_tables(planned, store, out, options.figures, failed[planned.name])
        except StageError:  # there is nothing to show
            if not outcome.failed and not outcome.left:
                raise
            continue
        written[planned.name] = report, files
        behind = {recipe: artifact.identity for recipe, artifact in planned.graph.trained.items()}
        publish(f"{report.target}-{report.scale}", f"{report.title} at scale {report.scale}", files, store, behind)
    if pool and (why := {recipe: reason for one in failed.values() for recipe, reason in one.items()}):
        recipes = {reason: ", ".join(recipe for recipe in why if why[recipe] == reason) for reason in why.values()}
        reasons = "; ".join(f"{names}: {reason}" for reason, names in recipes.items())
        count = len({recipe for one in wanted for recipe in one.graph.evaluations})
        raise StageError(f"{len(why)} of {count} models failed: {reasons}")
    outcome.raise_failures()
    return written


def paths_of(written: dict[str, Written]) -> dict[str, dict[str, str]]:
    """As a flow returns them."""
    return {name: {kind: str(path) for kind, path in files.items()} for name, (_, files) in written.items()}


def run_planned(wanted: Sequence[PlannedExperiment], store: Store, execution: Execution, **given: Any) -> None:
    """`run_experiments` in a flow run of its own, for commands, which have planned already."""

    @flow(name="reproduce", flow_run_name="{experiment} {scale}", persist_result=False, on_cancellation=[cancel_runs])
    def run(experiment: str, scale: str) -> None:
        run_experiments(wanted, store, execution, **given)

    run(" ".join(planned.name for planned in wanted), wanted[0].resolved.scale)


def _failed_recipes(planned: PlannedExperiment, outcome: Outcome) -> dict[str, str]:
    """Why recipes of an experiment are not complete, by name: the first failure of what they need."""
    found: dict[str, str] = {}
    for piece, error in outcome.failed.items():
        for recipe in (name for artifact in piece.artifacts for name in planned.graph.wanted_by(artifact)):
            found.setdefault(recipe, " ".join(str(error).split()))
    return found
