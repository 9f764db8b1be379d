"""The commands that render what was measured, or printed: `tokenweight report`, `runtimes` and `audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenweight.commands.options import (
    RESULTS,
    STORE,
    FiguresOption,
    FormatsOption,
    JsonOption,
    OutOption,
    ScaleOption,
    SeedsOption,
    StoreOption,
    StyleOption,
    open_store,
    with_inputs,
)
from tokenweight.commands.showing import print_markdown, show
from tokenweight.errors import UserError
from tokenweight.recipes.inputs import Inputs


@with_inputs
def report(
    target: Annotated[
        str, typer.Argument(help='A table or figure of the paper, e.g. table-3; with --html also "all".')
    ],
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    formats: FormatsOption = None,
    style: StyleOption = "both",
    html: Annotated[Path | None, typer.Option(help="Write one page, with what is behind each number, instead.")] = None,
    as_json: JsonOption = False,
    figures: FiguresOption = True,
) -> None:
    """Render a target again from the records in the store; loads no model, shows what is missing as missing."""
    from tokenweight.reports.paper.numbers import paper_tables
    from tokenweight.reports.writing import chosen_formats
    from tokenweight.tasks.collect import collect, plan_targets

    chosen = chosen_formats(formats)
    place = open_store(store)
    if not place.root.is_dir():
        raise UserError(
            f"--store {store}: no such directory, so no records; run `tokenweight reproduce {target}` first"
        )
    if html is not None:
        if as_json or formats is not None or style != "both":
            raise UserError("--html: is a page of its own; leave out --json, --formats and --style")
        from tokenweight.tasks.html_page import write_html

        left_out = write_html(
            target,
            scale,
            inputs,
            place,
            html.expanduser().resolve(),
            out_dir=out.expanduser(),
            seeds=seeds,
            figures=figures,
        )
        for line in left_out:
            typer.echo(line, err=True)
        typer.echo(str(html))
        return
    wanted, left_out = plan_targets(target, scale, inputs, place, seeds)
    for line in left_out:
        typer.echo(line, err=True)
    if style == "paper":  # of all targets, those that have printed numbers
        wanted = [planned for planned in wanted if planned.target.name in paper_tables()] or wanted
    for planned in wanted:
        result, files = collect(planned, place, out.expanduser().resolve(), chosen, style, figures and style != "paper")
        show(result, files, style, as_json)


def runtimes(
    files: Annotated[list[Path], typer.Argument(help="JSON files of benchmarks/training_cost.py and zero3.py.")],
    out: OutOption = RESULTS,
    formats: FormatsOption = None,
    style: StyleOption = "both",
    as_json: JsonOption = False,
) -> None:
    """Render Table 6 (run time of each weighting) from measurements on your GPUs, beside the paper's."""
    from tokenweight.reports.runtimes import read_runtimes, runtime_report
    from tokenweight.reports.writing import chosen_formats, write_report

    chosen = chosen_formats(formats)
    result = runtime_report(read_runtimes(files))
    show(result, write_report(result, out.expanduser().resolve(), chosen, style), style, as_json)


def audit(as_json: JsonOption = False) -> None:
    """Recompute what derives from other numbers in the paper itself, and list what does not follow."""
    from tokenweight.reports.audit import audit as audit_cells
    from tokenweight.reports.audit_markdown import render
    from tokenweight.reports.paper.numbers import paper_cells

    result = audit_cells(paper_cells())
    if as_json:
        typer.echo(result.model_dump_json(indent=1))
    else:
        print_markdown(render(result))
