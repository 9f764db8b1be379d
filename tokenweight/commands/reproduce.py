"""The commands that run experiments: `tokenweight reproduce`, `sweep`, `serve`; `evaluate` runs its own by `make_and_show`."""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenweight import embedded
from tokenweight.commands.command import command, note, show
from tokenweight.errors import UserError
from tokenweight.files import check_writable
from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.pipeline.store import Store, open_store
from tokenweight.progress import counted
from tokenweight.recipes.execution import execution_for
from tokenweight.recipes.inputs import Inputs, absolute
from tokenweight.recipes.options import Choices, RunOptions, Seeds
from tokenweight.recipes.recipe import parse, shown
from tokenweight.recipes.schema import AtLeastOne, Execution


@command
def reproduce(
    experiments: list[str],
    /,
    *,
    inputs: Inputs,
    scale: str = "smoke",
    seeds: Seeds | None = None,
    options: RunOptions,
    choices: Choices,
    execution: tuple[str, ...] = (),
) -> None:
    from tokenweight.tasks.experiments import plan_texts

    place = open_store(options.store)
    wanted, left_out = plan_texts(experiments, scale, inputs, place, seeds)
    note(*left_out)
    chosen = partial(execution_for, wanted[0].like, execution, here=not options.pool, **choices)
    texts = [
        re.sub(r"\A.+\.ya?ml(?=(:\d+)?\Z)", lambda path: absolute(Path(path[0]).expanduser()), one)
        for one in experiments
    ]
    data = _from_anywhere(inputs)
    given = {"scale": scale, "seeds": seeds, "execution": execution, **choices, **data}
    experiment = texts[0] if "\n" in texts[0] else shlex.join(texts)
    make_and_show(wanted, place, options, chosen, parameters={"experiment": experiment, **given})


def _from_anywhere(inputs: Inputs) -> dict[str, Any]:
    """With paths as workers in other directories find them."""
    from tokenweight.reports.targets.schema import placed, placed_setting

    here, data = Path.cwd(), inputs.model_dump()
    settings = {
        key: (text, parse(text), placed_setting(key, parse(text), here)) for key, text in inputs.assignments().items()
    }
    own = [f"{key}={text if old == new else shown(new)}" for key, (text, old, new) in settings.items()]
    return {name: placed(value, here) if isinstance(value, str) else value for name, value in data.items()} | {
        "settings": own
    }


@command
def sweep(
    recipes: list[str],
    /,
    *,
    inputs: Inputs,
    over: tuple[str, ...] = (),
    members: tuple[str, ...] = (),
    measures: str | None = None,
    name: str | None = None,
    scale: str = "smoke",
    dry_run: bool = False,
    options: RunOptions,
    choices: Choices,
    execution: tuple[str, ...] = (),
) -> None:
    """A user's experiment that is written on the command line: its text is what `plan` and `reproduce` take."""
    from tokenweight.commands.plan import plan
    from tokenweight.evaluation.units import offered
    from tokenweight.recipes.recipe import chosen_names
    from tokenweight.reports.targets.find import find_experiments, sweep_experiment

    benchmarks = chosen_names("--measures", measures, offered("sweep", measures)) if measures else ()
    user = sweep_experiment(recipes, over, members, benchmarks, name)
    try:  # what is wrong is named as the options name it, not by lines of the text
        find_experiments([user], scale, inputs)
    except UserError as error:
        text = re.sub(r"^rows\[\d+\]\.", "", str(error))
        raise UserError(re.sub(r"^over\.", "--member " if members else "--over ", text)) from None
    text = user.model_dump_json(indent=1, exclude_defaults=True)
    given = {"scale": scale, "store": options.store, **inputs.model_dump()}
    if dry_run:
        plan([text], **given, execution=execution, **choices)
    else:
        reproduce([text], **{**given, **dict(options)}, execution=execution, **choices)


@command
def serve(*, runs: AtLeastOne = 2, take_over: bool = False) -> None:
    """Register the deployments of prefect.yaml on the Prefect server in use and run them until Ctrl-C."""
    if find_spec("prefect") is None:
        raise UserError("prefect: is not installed; run `make install`, or pip install 'tokenweight[flows]'")
    os.environ["PREFECT_PLUGINS_ENABLED"] = "false"  # ours is for people's own `prefect` commands
    from tokenweight.flows.server import use_server
    from tokenweight.flows.serving import serve as serve_deployments

    url, source = use_server()
    print(f"server: {url.removesuffix('/api')} ({source})", flush=True)
    serve_deployments(Path.cwd(), url, runs, take_over, partial(print, flush=True))


def make_and_show(
    wanted: Sequence[ResolvedExperiment],
    store: Store,
    options: RunOptions,
    execution: Callable[[], Execution],
    *,
    as_json: bool = False,
    parameters: dict[str, Any] | None = None,
) -> None:
    """Run what the store lacks, all checked before, and print every table, also where others failed.

    `execution` is asked for where something is to be made; `parameters` are the flow's, for models in a pool.
    """
    from tokenweight.planning.plan import check_before_running, check_inputs, schedule
    from tokenweight.reports.files import current_results
    from tokenweight.tasks.experiments import packed_as_it_goes, write_tables

    out, graphs = options.out.expanduser().resolve(), [planned.graph for planned in wanted]
    plans = [schedule(graph, store) for graph in graphs]
    if all(entry.action == "reuse" for plan in plans for entry in plan):
        count, names = len({entry.artifact for plan in plans for entry in plan}), ", ".join(one.name for one in wanted)
        say = note if as_json else print
        say(f"{counted(count, 'artifact')} of {names} ({wanted[0].manifest.scale}) in the store: nothing to run.")
        with packed_as_it_goes(store.root, options.records):
            for planned in wanted:
                files = current_results(planned.manifest, store.root, out, options.figures)
                show(files or write_tables(planned, store, out, options.figures), as_json)
        return
    for graph in graphs:  # what is not there is named first, whatever this machine lacks
        check_inputs(graph)
    if options.pool and not os.environ.keys() & {"PREFECT_API_URL", "PREFECT_HOME"}:
        raise UserError(
            f"--pool {options.pool}: needs a Prefect server that stays; set PREFECT_API_URL (docs/operations.md)"
        )
    chosen = execution()
    note(*check_before_running(graphs, store, chosen))
    check_writable("--out", out)
    written: dict[str, dict[str, Path]] = {}
    try:
        run_flow(wanted=wanted, store=store, execution=chosen, options=options, parameters=parameters, written=written)
    finally:
        for files in written.values():
            show(files, as_json)


def run_flow(function: str = "run_planned", **parameters: Any) -> None:
    """Run a flow, by default of planned experiments, in this process; its errors are left to the command line."""
    embedded.prepare()
    from tokenweight.tasks.worker import warm_up

    warm_up()  # the workers' imports, beside Prefect's and its server's start
    from tokenweight.flows import one_line
    from tokenweight.flows import reproduce as flows

    one_line.left_to_caller = True
    with embedded.ended_together():
        getattr(flows, function)(**parameters)
