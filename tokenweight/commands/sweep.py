"""`tokenweight sweep`: recipes with other values of their fields, side by side in one table and one figure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tokenweight import embedded
from tokenweight.commands.options import (
    RESULTS,
    STORE,
    DeviceOption,
    ExecutionOption,
    FiguresOption,
    LauncherOption,
    OutOption,
    ProcessesOption,
    ScaleOption,
    StoreOption,
    open_store,
    with_inputs,
)
from tokenweight.commands.showing import print_markdown, show
from tokenweight.errors import StageError, UserError
from tokenweight.recipes.inputs import Inputs


@with_inputs
def sweep(
    recipes: Annotated[list[str], typer.Argument(help="A recipe, e.g. table-3/frozen-sparse, or several.")],
    inputs: Inputs,
    over: Annotated[
        list[str] | None, typer.Option(help="field=value,value; repeat for more fields: members are the product.")
    ] = None,
    member: Annotated[
        list[str] | None, typer.Option(help="In place of --over: 'field=value field=value'; repeat for more members.")
    ] = None,
    measures: Annotated[
        str | None, typer.Option(help="Of ruler,longbench,mmlu,bbh,perplexity,pmi,planted. Default: the first three.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the files. Default: made of recipe and fields.")] = None,
    scale: ScaleOption = "smoke",
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run and why; run nothing.")] = False,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Write table and figure from what is in the store; run nothing.")
    ] = False,
    launcher: LauncherOption = None,
    processes: ProcessesOption = None,
    device: DeviceOption = None,
    execution: ExecutionOption = None,
    figures: FiguresOption = True,
) -> None:
    """Train and evaluate recipes over values of their fields, each once; write one table and one figure."""
    from tokenweight.recipes.execution import execution_for, planned_execution
    from tokenweight.recipes.sweep import sweep_of
    from tokenweight.tasks.sweep import check, chosen_measures, collect_sweep, plan_sweep

    if dry_run and report_only:
        raise UserError("--dry-run: does not go with --report-only; leave one out")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is not a directory; choose another")
    benchmarks, place = chosen_measures(measures), open_store(store)
    planned = plan_sweep(sweep_of(recipes, over or (), member or (), scale, inputs, name), scale, benchmarks, place)
    how: dict[str, Any] = {"launcher": launcher, "processes": processes, "device": device}
    if dry_run:
        from tokenweight.planning.view import PlanView, TargetPart, print_plan

        chosen, named = planned_execution(scale, execution or (), **how), planned.sweep.name
        recipes_run = [members[0].loaded.recipe for members in planned.runs.values()]
        part = TargetPart(named, planned.graph, recipes_run, seeds=1)
        print_plan(PlanView.of(named, scale, [part], [], place, chosen), None, everything=False)
        check(planned, place, chosen)
        return
    if not report_only:
        if check(planned, place, planned_execution(scale, execution or (), **how)):
            execution_for(scale, execution or (), **how)  # are its GPUs here?
            _run_flow(
                out.expanduser().resolve() / f"{planned.sweep.name}.md",
                recipes=recipes,
                over=over,
                members=member,
                measures=measures,
                name=name,
                scale=scale,
                store=str(place.root),
                out=str(out),
                **how,
                execution=execution,
                figures=figures,
                **{**inputs.model_dump(), "settings": list(inputs.settings)},
            )
            return
        typer.echo(
            f"All {len(planned.graph.nodes)} artifacts of {planned.sweep.name} are in the store: nothing to run."
        )
    report, files = collect_sweep(planned, place, out.expanduser().resolve(), figures=figures)
    show(report, files)


def _run_flow(table: Path, **parameters: Any) -> None:
    """Run the flow and print the table that it wrote, also where members failed."""
    embedded.prepare(Path(parameters["store"]))
    from tokenweight.flows.console import leave_errors_to_caller
    from tokenweight.flows.sweep import sweep as sweep_flow

    leave_errors_to_caller()
    embedded.end_at_signal()
    table.unlink(missing_ok=True)  # what is printed shall be of this run
    try:
        files = sweep_flow(**parameters)
    except StageError:
        if table.is_file():
            print_markdown(table.read_text())
        raise
    print_markdown(table.read_text())
    typer.echo()
    for path in files.values():
        typer.echo(path)
