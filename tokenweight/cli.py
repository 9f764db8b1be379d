"""The command `tokenweight`. Imports what is heavy inside the commands: `--help` answers at once."""

from __future__ import annotations

import inspect
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.exceptions import TyperException

from tokenweight import embedded
from tokenweight.commands.sweep import sweep
from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.commands import data, rescore, ruler
from tokenweight.inspection.command import inspect_command
from tokenweight.recipes.inputs import Inputs

if TYPE_CHECKING:
    from tokenweight.reports.model import Report, Style
    from tokenweight.store import Store

app = typer.Typer(
    help="Token weighting for long-range language modeling: reproduce the paper's tables, one stage at a time.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

TargetArgument = Annotated[
    str, typer.Argument(help="A table or figure of the paper, e.g. table-3; paper: all of them.")
]
ScaleOption = Annotated[
    Literal["smoke", "mini", "paper"], typer.Option(help="smoke: CPU, minutes; mini: one GPU; paper: 8 GPUs.")
]
StoreOption = Annotated[Path, typer.Option(help="Directory of the artifacts; finished stages are reused.")]
OutOption = Annotated[Path, typer.Option(help="Directory of the results.")]
FormatsOption = Annotated[str | None, typer.Option(help="Of md,tex,csv,json, e.g. tex,csv. Default: all.")]
StyleOption = Annotated[
    Literal["ours", "paper", "both"],
    typer.Option(help="ours; paper: the paper's printed values alone; both, with their difference."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
INPUT_OPTIONS = {
    "corpus": ("--corpus", "Directory of .txt, .jsonl or .parquet in place of the recipe's corpus."),
    "base": ("--base", 'Checkpoint directory; "pretrain": trained here; "random:CONFIG": random weights.'),
    "tokenizer": ("--tokenizer", "Directory with tokenizer.json, for --base pretrain or random."),
    "mmlu": ("--mmlu", 'Directory with dev/ and test/, or "hub".'),
    "bbh": ("--bbh", 'Directory of the official JSON files, or "hub".'),
    "longbench": ("--longbench", 'Directory of the official JSONL files, or "hub".'),
    "haystack": ("--haystack", "RULER's haystack: directory of .txt, or JSON with `text`."),
    "squad": ("--squad", "SQuAD dev-v2.0 JSON."),
    "hotpotqa": ("--hotpotqa", "HotpotQA dev-distractor JSON."),
}
EVALUATION_OPTIONS = {
    name: option for name, option in INPUT_OPTIONS.items() if name not in ("corpus", "base", "tokenizer")
} | {"corpus": ("--corpus", "Directory of .txt, .jsonl or .parquet for perplexity and pmi. Default: PG-19 of the hub.")}
FiguresOption = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Draw the figures beside the table, some seconds.")
]
SeedsOption = Annotated[int | None, typer.Option(min=1, help="Runs of each recipe; default: the target's own.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="key=value of a recipe field; repeat for more.")]
DeviceOption = Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Default: the scale's own.")]
LauncherOption = Annotated[
    Literal["inline", "torchrun", "deepspeed"] | None, typer.Option(help="Default: the scale's own.")
]
ProcessesOption = Annotated[int | None, typer.Option(min=1, help="Training processes of all nodes, one a GPU.")]
ExecutionOption = Annotated[
    list[str] | None, typer.Option("--execution", help="key=value of Execution, e.g. nodes=2; docs/launching.md.")
]

STORE = Path("store")
RESULTS = Path("results")


def _with_inputs(
    command: Callable[..., None], offered: dict[str, tuple[str, str]] = INPUT_OPTIONS
) -> Callable[..., None]:
    """Give a command that takes `inputs` one option for each of a user's inputs, and --set."""

    def run(**given: Any) -> None:
        paths = {name: given.pop(name) for name in offered}
        command(inputs=Inputs(settings=tuple(given.pop("settings") or ()), **paths), **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(command, eval_str=True).parameters
    options = [
        inspect.Parameter(name, keyword, default=None, annotation=Annotated[str | None, typer.Option(flag, help=text)])
        for name, (flag, text) in offered.items()
    ]
    options.append(inspect.Parameter("settings", keyword, default=None, annotation=SetOption))
    kept = [parameter.replace(kind=keyword) for name, parameter in own.items() if name != "inputs"]
    run.__signature__ = inspect.Signature([*kept, *options])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


@app.command()
@_with_inputs
def reproduce(
    target: TargetArgument,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    launcher: LauncherOption = None,
    processes: ProcessesOption = None,
    device: DeviceOption = None,
    execution: ExecutionOption = None,
    figures: FiguresOption = True,
) -> None:
    """Run what a target needs and is not in the store, and write its table."""
    from tokenweight.planning import check_checkpoints, check_execution, check_inputs, check_texts, schedule
    from tokenweight.recipes.execution import execution_for
    from tokenweight.tasks.collect import collect, plan_targets

    place = _store(store)
    wanted, left_out = plan_targets(target, scale, inputs, place, seeds)
    for line in left_out:
        typer.echo(line, err=True)
    for planned in wanted:
        check_inputs(planned.graph)
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is not a directory; choose another")
    plans = [schedule(planned.graph, place) for planned in wanted]
    if any(step.action != "reuse" for steps in plans for step in steps):
        chosen = execution_for(scale, execution or (), launcher=launcher, processes=processes, device=device)
        for steps in plans:
            check_execution(steps, chosen)
            check_checkpoints(steps, place, chosen)
        check_texts(step for steps in plans for step in steps)
        _run_flow(
            target=target,
            scale=scale,
            seeds=seeds,
            store=str(place.root),
            out=str(out),
            launcher=launcher,
            processes=processes,
            device=device,
            execution=execution,
            figures=False,  # drawn below
            **{**inputs.model_dump(), "settings": list(inputs.settings)},
        )
    else:
        artifacts = {node for planned in wanted for node in planned.graph.nodes}
        typer.echo(f"All {len(artifacts)} artifacts of {target} ({scale}) are in the store: nothing to run.")
    for planned in wanted:
        report, files = collect(planned, place, out.expanduser().resolve(), figures=figures)
        _show(report, files)


def _store(path: Path) -> Store:
    """The store at a path where one can be written."""
    from tokenweight.store import Store

    root = path.expanduser().resolve()
    place = next(parent for parent in (root, *root.parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise UserError(f"--store {path}: {place} is not a directory that can be written; choose another")
    return Store(root)


def _run_flow(**parameters: Any) -> None:
    embedded.prepare(Path(parameters["store"]))
    from tokenweight.flows.console import leave_errors_to_caller
    from tokenweight.flows.reproduce import reproduce as reproduce_flow

    leave_errors_to_caller()
    embedded.end_at_signal()
    reproduce_flow(**parameters)


def _show(report: Report, files: dict[str, Path], style: Style = "both", as_json: bool = False) -> None:
    from tokenweight.reports import markdown
    from tokenweight.reports.styles import styled

    shown = styled(report, style)
    if as_json:
        typer.echo(shown.model_dump_json(indent=2))
        return
    _print_markdown(markdown.render(shown))
    typer.echo()
    for path in files.values():
        typer.echo(str(path))


def _print_markdown(text: str) -> None:
    """Markdown as it is in a file or pipe, laid out in a terminal."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        typer.echo(text, nl=False)


@app.command()
@_with_inputs
def plan(
    target: TargetArgument,
    inputs: Inputs,
    scale: ScaleOption = "smoke",
    seeds: SeedsOption = None,
    store: StoreOption = STORE,
    as_json: JsonOption = False,
    launcher: LauncherOption = None,
    processes: ProcessesOption = None,
    device: DeviceOption = None,
    execution: ExecutionOption = None,
) -> None:
    """Show each artifact that a target needs: run, reuse or wait, and why. Runs nothing."""
    from tokenweight.graph import union
    from tokenweight.plan_view import plan_rows, print_plan
    from tokenweight.planning import check_checkpoints, check_execution, schedule
    from tokenweight.recipes.execution import default_execution, planned_execution
    from tokenweight.tasks.collect import plan_targets

    place = _store(store)
    wanted, left_out = plan_targets(target, scale, inputs, place, seeds)
    graph = union(planned.graph for planned in wanted)
    graph.missing += left_out
    steps, chosen = schedule(graph, place), default_execution(scale)
    if launcher or processes or device or execution:  # else the scale's own, which need not run on this machine
        chosen = planned_execution(scale, execution or (), launcher=launcher, processes=processes, device=device)
        check_execution(steps, chosen)
    if as_json:
        content = {"target": target, "scale": scale, "missing": graph.missing}
        typer.echo(json.dumps({**content, "artifacts": plan_rows(graph, place)}, indent=1))
    else:
        print_plan(target, scale, graph, place)
    check_checkpoints(steps, place, chosen)


@app.command("show-config")
def show_config(
    recipe: Annotated[str, typer.Argument(help="A recipe, e.g. table-3/frozen-sparse.")],
    scale: ScaleOption = "smoke",
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a recipe with the origin of each value."""
    from tokenweight.recipes import load
    from tokenweight.recipes.cited import resolved

    loaded = load(recipe, scale, Inputs(settings=tuple(settings or ())))
    rows = list(resolved(loaded.recipe, loaded.settings))
    if as_json:
        typer.echo(json.dumps({key: {"value": value, "origin": origin} for key, value, origin in rows}, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{recipe} at scale {scale}", title_justify="left")
    for heading in ("key", "value", "origin"):
        table.add_column(heading, overflow="fold")
    for key, value, origin in rows:
        table.add_row(key, json.dumps(value), origin)
    Console().print(table)


@app.command()
@_with_inputs
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
    place = _store(store)
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
        _show(result, files, style, as_json)


@app.command()
def targets(scale: ScaleOption = "smoke", store: StoreOption = STORE, as_json: JsonOption = False) -> None:
    """List the targets: what each shows, the recipes it trains, those in the store, GPU-hours at the paper's scale."""
    from tokenweight.tasks.overview import overview, print_overview

    content = overview(scale, _store(store))
    if as_json:
        typer.echo(json.dumps(content, indent=1))
    else:
        print_overview(content)


def _evaluate(
    model: Annotated[list[str], typer.Option(help="Checkpoint directory or hub id; repeat for more rows.")],
    inputs: Inputs,
    revision: Annotated[str | None, typer.Option(help="Of a hub id. Default: its main branch.")] = None,
    benchmarks: Annotated[
        str | None, typer.Option(help="Of ruler,longbench,mmlu,bbh,perplexity,pmi. Default: all but pmi.")
    ] = None,
    scale: Annotated[
        Literal["paper", "smoke"], typer.Option(help="paper: the whole protocol; smoke: shipped miniatures.")
    ] = "paper",
    limit: Annotated[int | None, typer.Option(min=1, help="Samples of a task at most. Default: all.")] = None,
    lengths: Annotated[
        str | None, typer.Option(help="RULER's and perplexity's, in tokens, e.g. 4096,8192. Default: what fits.")
    ] = None,
    context: Annotated[int | None, typer.Option(min=2, help="Longest input in tokens. Default: config.json's.")] = None,
    store: StoreOption = STORE,
    out: OutOption = RESULTS,
    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Default: cuda, at scale smoke auto.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="That share the work. Default: one a visible GPU.")
    ] = None,
    backend: Annotated[
        Literal["hf", "vllm"], typer.Option(help="vllm: where it is installed (docs/evaluate.md); no perplexity.")
    ] = "hf",
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs that share one model; with --backend vllm.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Run the paper's evaluation on any causal language model, and write its table."""
    from tokenweight.tasks import any_model

    chosen, wanted = any_model.chosen_benchmarks(benchmarks, backend), any_model.chosen_lengths(lengths)
    if tensor_parallel > 1 and backend == "hf":
        raise UserError(f"--tensor-parallel {tensor_parallel}: belongs to --backend vllm; leave it out")
    if revision is not None and len(model) > 1:
        raise UserError(f"--revision {revision}: belongs to one model; evaluate it alone")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is not a directory; choose another")
    place = _store(store)
    subjects = any_model.subjects(model, revision, context, chosen)
    planned = any_model.plan_models(
        subjects, scale, inputs, place, benchmarks=chosen, lengths_tokens=wanted, limit=limit, backend=backend
    )
    any_model.run_models(planned, place, device, processes, tensor_parallel)
    report, files = any_model.collect_models(planned, place, out.expanduser().resolve())
    _show(report, files, as_json=as_json)


app.command("evaluate")(_with_inputs(_evaluate, EVALUATION_OPTIONS))


def _agree(
    model: Annotated[str, typer.Option(help="Checkpoint directory or hub id.")],
    inputs: Inputs,
    revision: Annotated[str | None, typer.Option(help="Of a hub id. Default: its main branch.")] = None,
    backends: Annotated[str, typer.Option(help="Two; what the store holds of them is not run again.")] = "hf,vllm",
    benchmarks: Annotated[str, typer.Option(help="Of ruler,longbench,mmlu,bbh.")] = "ruler,longbench,mmlu,bbh",
    samples: Annotated[
        int, typer.Option(min=1, help="Of each benchmark, evenly of its tasks, at least one each.")
    ] = 50,
    limit: Annotated[
        int | None, typer.Option(min=1, help="In place of --samples: of each task, as of `evaluate --limit`.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="In place of --samples: all, as of `evaluate` without a limit.")
    ] = False,
    scale: Annotated[
        Literal["paper", "smoke"], typer.Option(help="paper: the whole protocol; smoke: shipped miniatures.")
    ] = "paper",
    lengths: Annotated[str | None, typer.Option(help="RULER's, in tokens, e.g. 4096,8192. Default: what fits.")] = None,
    context: Annotated[int | None, typer.Option(min=2, help="Longest input in tokens. Default: config.json's.")] = None,
    store: StoreOption = STORE,
    other_store: Annotated[
        Path | None, typer.Option(help="Of the second backend, where it was run elsewhere. Default: --store.")
    ] = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Default: cuda, at scale smoke auto.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="That share the work. Default: one a visible GPU.")
    ] = None,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs that share one model; vllm's.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Ask two backends the same samples and compare prompts, outputs, scores; exit code 1 where they do not agree."""
    from tokenweight.tasks import agree, any_model

    if limit and whole:
        raise UserError(f"--limit {limit}: does not go with --whole; leave one out")
    pair, place = agree.chosen_backends(backends), _store(store)
    stores = (place, _store(other_store) if other_store else place)
    chosen, wanted = any_model.chosen_benchmarks(benchmarks), any_model.chosen_lengths(lengths)
    planned = agree.plan_both(
        any_model.subjects([model], revision, context, chosen)[0], scale, inputs, stores, pair,
        benchmarks=chosen, lengths_tokens=wanted, samples=None if limit or whole else samples, limit=limit,
    )  # fmt: skip
    agree.run_both(planned, stores, device, processes, tensor_parallel)
    result = agree.verdict(planned, stores)
    typer.echo(json.dumps(result.as_dict(), indent=1) if as_json else agree.table(result))
    if result.disagreements:
        raise StageError(f"{pair[0]} and {pair[1]} do not agree: {'; '.join(result.disagreements)}")


app.command("agree")(
    _with_inputs(_agree, {name: EVALUATION_OPTIONS[name] for name in EVALUATION_OPTIONS if name != "corpus"})
)


@app.command()
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
    _show(result, write_report(result, out.expanduser().resolve(), chosen, style), style, as_json)


@app.command()
def audit(as_json: JsonOption = False) -> None:
    """Recompute what derives from other numbers in the paper itself, and list what does not follow."""
    from tokenweight.reports.audit import audit as audit_cells
    from tokenweight.reports.audit_markdown import render
    from tokenweight.reports.paper.numbers import paper_cells

    result = audit_cells(paper_cells())
    if as_json:
        typer.echo(result.model_dump_json(indent=1))
    else:
        _print_markdown(render(result))


@app.command()
def doctor(store: StoreOption = STORE, as_json: JsonOption = False) -> None:
    """Say what is here and what is missing: Python, packages, GPUs, disk, data, credentials."""
    from tokenweight.doctor import examine, print_findings

    findings = examine(store.expanduser().resolve())
    if as_json:
        typer.echo(json.dumps([finding.__dict__ for finding in findings], indent=1))
    else:
        print_findings(findings)


app.command("inspect")(inspect_command)
app.command("sweep")(_with_inputs(sweep))
app.add_typer(ruler, name="ruler")
app.add_typer(rescore, name="rescore")
app.add_typer(data, name="data")


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2, a failed stage one line and exit code 1."""
    logging.captureWarnings(True)
    embedded.quiet()
    try:
        app(args=sys.argv[1:] or ["--help"], standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        _stop("interrupted; run the same command again to go on", 130)
    except TyperException as error:
        _stop(error.format_message().replace("Value error, ", ""), error.exit_code)
    except UserError as error:
        _stop(str(error), 2)
    except StageError as error:
        _stop(str(error), 1)


def _stop(message: str, code: int) -> None:
    print("error:", " ".join(message.split()), file=sys.stderr)
    logging.getLogger("prefect").setLevel(logging.ERROR)  # its farewell would stand below the line that matters
    sys.exit(code)
