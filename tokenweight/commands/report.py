"""The commands that render what was measured, or printed: `tokenweight report`, `runtimes` and `audit`."""

import shlex
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from tokenweight.commands.command import command, note, print_text, show
from tokenweight.errors import StageError, UserError
from tokenweight.pipeline.manifest import Manifest, kept_manifests, manifest_path, read_manifest
from tokenweight.pipeline.store import Store, existing_store
from tokenweight.progress import counted
from tokenweight.recipes.inputs import Inputs, as_options
from tokenweight.recipes.options import RESULTS, STORE, Seeds
from tokenweight.recipes.recipe import chosen_names
from tokenweight.reports.model import Style
from tokenweight.reports.targets import ALL, TARGETS
from tokenweight.reports.targets.schema import read_experiment


@command
def report(
    experiment: str,
    /,
    *,
    inputs: Inputs,
    scale: str = "smoke",
    seeds: Seeds | None = None,
    store: Path = STORE,
    out: Path = RESULTS,
    formats: str | None = None,
    style: Style = "both",
    latex: str | None = None,
    html: Path | None = None,
    as_json: bool = False,
    figures: bool = True,
) -> None:
    from tokenweight.reports.files import chosen_formats
    from tokenweight.reports.latex import LAYOUTS
    from tokenweight.reports.paper.numbers import paper_tables
    from tokenweight.reports.writing import text_of, write_results

    chosen, directory = chosen_formats(formats), out.expanduser().resolve()
    layout = chosen_names("--latex", latex, LAYOUTS) if latex is not None else ()
    place = existing_store(store)
    if html is not None and (as_json or formats is not None or latex is not None or style != "both"):
        raise UserError("--html: writes a page of its own; leave out --json, --formats, --latex and --style")
    everything = html is not None and experiment == "all"
    if html is not None and not everything and out != RESULTS:
        raise UserError("--out: names the tables that a page of all experiments shows too; leave it out with --html")
    texts = list(TARGETS) if everything else [experiment]
    manifests, left_out = _manifests(texts, scale, inputs, seeds, place, lenient=everything)
    note(*left_out)
    if html is not None:
        from tokenweight.reports.html.page import write_html

        written = [*out.glob("*.json"), *out.glob(f"{scale}/*.json")] if everything else None
        write_html(manifests, place.root, html.expanduser().resolve(), figures=figures, written=written)
        print(html)
        return
    if style == "paper":  # of all experiments, those that have printed numbers
        manifests = [manifest for manifest in manifests if manifest.name in paper_tables()] or manifests
    lacking, elsewhere = list[str](), "" if store == STORE else f" --store {shlex.quote(str(store))}"
    for manifest in manifests:
        try:
            result, files = write_results(manifest, place.root, directory, chosen, style, figures, layout)
        except StageError as error:
            lacking.append(f"{error}{elsewhere}")
            continue
        show(files, as_json, text_of(result, style, as_json))
        if style != "paper" and result.absent:
            count = counted(len(result.absent), "value")
            lacking.append(
                f"{manifest.name} ({manifest.scale}): {count} missing; run {manifest.full_command}{elsewhere}"
            )
    note(*lacking[:-1])
    if lacking:
        raise StageError(lacking[-1])


def _manifests(
    texts: Iterable[str], scale: str, inputs: Inputs, seeds: int | None, store: Store, lenient: bool
) -> tuple[list[Manifest], list[str]]:
    """The manifest of each experiment, and why some are left out, a line each: of "paper", or where `lenient`.

    A manifest is a file, or what the store has where the user says nothing that could change it (see `_kept`), or a
    plan's. Raises UserError for what is no experiment.
    """
    from tokenweight.reports.targets.find import find_experiments, targets_of
    from tokenweight.tasks.experiments import plan_experiments

    found, left_out, refused = list[Manifest](), list[str](), dict[str, list[str]]()
    as_it_was = inputs == Inputs() and seeds is None
    for text, all_of_paper in ((name, lenient or given == ALL) for given in texts for name in targets_of(given)):
        own = manifest_path(store.root, _name_of(text), scale)
        if text.endswith(".json"):
            found.append(read_manifest(Path(text).expanduser()))
        elif as_it_was and "\n" not in text and own.is_file():
            manifest, changes = _kept(own, text, scale, store)
            found.append(manifest)
            left_out += changes
        else:
            try:
                resolved = find_experiments([text], scale, inputs, seeds)
            except UserError as error:
                # What the store knows and find_experiments does not.
                held = [kept.scale for kept in kept_manifests(store.root) if kept.name == text]
                if held and text not in TARGETS:
                    raise UserError(
                        f"{text}: is in the store as it was run at scale {' and '.join(held)}; give --scale, and neither "
                        "--seeds nor data"
                    ) from None
                if not all_of_paper:
                    raise
                refused.setdefault(str(error), []).append(text)
                continue
            planned, lacking = plan_experiments(resolved, store, of_paper=all_of_paper)
            found += [one.manifest for one in planned]
            left_out += lacking
    for why, names in refused.items():
        left_out.append(f"{', '.join(names)} {'is' if len(names) == 1 else f'({len(names)}) are'} left out: {why}")
    return found, left_out


def _kept(own: Path, text: str, scale: str, store: Store) -> tuple[Manifest, list[str]]:
    """Of a name the store's `own` manifest: it needs no data, and is what was run. Of a file, which may have changed, a plan
    with that run's number of seeds and reasons for failures.

    Where the plan needs what the run was given or what is not here, it is the store's, and a line says so.
    """
    from tokenweight.planning.plan import check_inputs
    from tokenweight.reports.targets.find import find_experiments
    from tokenweight.tasks.experiments import plan_experiment

    kept = read_manifest(own)
    if not (text.endswith((".yaml", ".yml")) and Path(text).expanduser().is_file()):
        return kept, []
    given, seeds = ", ".join(" ".join(pair) for pair in as_options(kept.inputs)), len(kept.seeds)
    why = f"may have changed since, and needs {given}" if given else ""
    if not given:
        try:
            (found,) = find_experiments([text], scale, seeds=seeds if seeds != kept.experiment.seeds else None)
            planned = plan_experiment(found, store)
            check_inputs(planned.graph)
        except UserError as error:  # what it names is gone, or it was changed into what cannot be run
            why = f"cannot be planned any more ({error})"
    if why:
        day = date.fromtimestamp(own.stat().st_mtime)
        return kept, [f"{kept.name}: is shown as the store's manifest of {day} has it; {text} {why}"]
    rows = {row.model_copy(update={"failed": None}): row for row in kept.rows}
    alike = (rows.get(row, row) for row in planned.manifest.rows)
    return planned.manifest.model_copy(update={"rows": tuple(alike)}), []


def _name_of(text: str) -> str:
    """The experiment's name; of a file that is gone, its own."""
    if "\n" in text or not text.endswith((".yaml", ".yml")):
        return text
    if not Path(text).expanduser().is_file():
        return Path(text).stem
    with read_experiment(text) as spec:
        return spec.name


@command
def runtimes(
    files: list[Path],
    /,
    *,
    out: Path = RESULTS,
    formats: str | None = None,
    style: Style = "both",
    as_json: bool = False,
) -> None:
    from tokenweight.reports.files import chosen_formats
    from tokenweight.reports.runtimes import read_runtimes, runtime_report
    from tokenweight.reports.writing import text_of, write_report

    chosen = chosen_formats(formats)
    result = runtime_report(read_runtimes(files))
    written = write_report(result, out.expanduser().resolve(), chosen, style)
    show(written, as_json, text_of(result, style, as_json))


@command
def audit(*, as_json: bool = False) -> None:
    from tokenweight.reports.audit import audit as audit_cells
    from tokenweight.reports.audit import render
    from tokenweight.reports.paper.numbers import paper_cells

    result = audit_cells(paper_cells())
    if as_json:
        print(result.model_dump_json(indent=1))
    else:
        print_text(render(result), markdown=True)
