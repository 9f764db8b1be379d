"""The commands that render what was measured, or printed: `tokenweight report`, `runtimes` and `audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.options import results_directory
from tokenweight.commands.showing import note, print_markdown, show
from tokenweight.errors import StageError, UserError
from tokenweight.pipeline.opened import existing_store
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import (
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
)


@command
def report(
    experiment: Annotated[
        str, Field(description='A target, for example table-3, a YAML file, or a manifest; with --html also "all"')
    ],
    /,
    *,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    formats: FormatsOption = None,
    style: StyleOption = "both",
    html: Annotated[Path | None, Field(description="Write one page instead, with what is behind each number")] = None,
    as_json: JsonOption = False,
    figures: FiguresOption = True,
) -> None:
    """Tables and figures from the records in the store."""
    from tokenweight.commands.manifests import manifests_for
    from tokenweight.pipeline.manifest import keep_manifest, manifest_path
    from tokenweight.reports.paper.numbers import paper_tables
    from tokenweight.reports.writing import chosen_formats, write_results

    chosen, directory = chosen_formats(formats), results_directory(out)
    place = existing_store(store)
    if html is not None:
        if as_json or formats is not None or style != "both":
            raise UserError("--html: is a page of its own; leave out --json, --formats and --style")
        from tokenweight.reports.html.write_page import write_html
        from tokenweight.reports.targets import TARGETS

        everything = experiment == "all"
        manifests, left_out = manifests_for(
            list(TARGETS) if everything else [experiment], scale, inputs, seeds, place, lenient=everything
        )
        note(*left_out)
        written = [*out.glob("*.json"), *out.glob(f"{scale}/*.json")] if everything else None
        write_html(manifests, place.root, html.expanduser().resolve(), figures=figures, written=written)
        print(html)
        return
    manifests, left_out = manifests_for([experiment], scale, inputs, seeds, place)
    note(*left_out)
    if style == "paper":  # of all experiments, those that have printed numbers
        manifests = [manifest for manifest in manifests if manifest.name in paper_tables()] or manifests
    nothing: list[StageError] = []
    for manifest in manifests:
        try:
            result, files = write_results(manifest, place.root, directory, chosen, style, figures)
        except StageError as error:
            nothing.append(error)
            continue
        if style != "paper" and not manifest_path(place.root, manifest.name, manifest.scale).is_file():
            keep_manifest(manifest, place.root)
        show(result, files, style, as_json)
    if nothing and len(nothing) == len(manifests):
        raise nothing[0]
    note(*map(str, nothing))


@command
def runtimes(
    files: Annotated[list[Path], Field(description="JSON files of benchmarks/training_cost.py and zero3.py")],
    /,
    *,
    out: OutOption = RESULTS,
    formats: FormatsOption = None,
    style: StyleOption = "both",
    as_json: JsonOption = False,
) -> None:
    """Table 6 from measurements."""
    from tokenweight.reports.runtimes import read_runtimes, runtime_report
    from tokenweight.reports.writing import chosen_formats, write_report

    chosen = chosen_formats(formats)
    result = runtime_report(read_runtimes(files))
    show(result, write_report(result, results_directory(out), chosen, style), style, as_json)


@command
def audit(*, as_json: JsonOption = False) -> None:
    """The paper's own numbers, recomputed."""
    from tokenweight.reports.audit import audit as audit_cells
    from tokenweight.reports.audit.markdown import render
    from tokenweight.reports.paper.numbers import paper_cells

    result = audit_cells(paper_cells())
    if as_json:
        print(result.model_dump_json(indent=1))
    else:
        print_markdown(render(result))
