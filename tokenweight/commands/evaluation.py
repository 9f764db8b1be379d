"""The commands `evaluate`, `ruler generate`, `rescore` and `data fetch`: their options, and what they print."""

import json
import re
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from tokenweight.commands.command import command, note, print_json
from tokenweight.commands.reproduce import make_and_show
from tokenweight.corpus.sources import document_count
from tokenweight.errors import UserError
from tokenweight.evaluation.ruler.downloads import DIRECTORY, NAMES, check_packages, fetch
from tokenweight.evaluation.ruler.tasks import Profile
from tokenweight.files import check_writable, write_files
from tokenweight.flat import Part
from tokenweight.pipeline.store import open_store
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.options import EvaluationInputs, ModelOptions, RunOptions
from tokenweight.recipes.recipe import chosen_names
from tokenweight.recipes.schema import AtLeastOne, FilesCorpus, Seed

CHAT_TEMPLATE = "evaluation.lm_eval.chat_template"


@command
def evaluate(
    *,
    models: list[str],
    compare: str | None = None,
    benchmarks: str | None = None,
    tasks: str | None = None,
    lengths: str | None = None,
    apply_chat_template: bool = False,
    output_path: Path | None = None,
    dry_run: bool = False,
    inputs: EvaluationInputs,
    how: ModelOptions,
    options: Annotated[RunOptions, Part(RunOptions, "store", "out")],
    as_json: bool = False,
) -> None:
    from tokenweight.evaluation.run import evaluation_execution
    from tokenweight.evaluation.units import offered
    from tokenweight.tasks.experiments import plan_models

    place = open_store(options.store)
    if output_path is not None:
        if output_path.suffix == ".json":
            raise UserError(f"--output-path {output_path}: is a file; give a directory")
        check_writable("--output-path", output_path)
    if tasks is not None:
        if benchmarks is not None:
            raise UserError("--tasks, --benchmarks: both choose what is run; give one of them")
        own, names = offered("evaluate"), [task.strip() for task in tasks.split(",")]
        benchmarks = ",".join(
            name if name in own or name.startswith("lm_eval:") else f"lm_eval:{name}" for name in names if name
        )
    if apply_chat_template:
        if "lm_eval:" not in (benchmarks or ""):
            raise UserError(
                "--apply-chat-template: applies only to tasks of lm-eval; name one with --tasks, or leave it out"
            )
        inputs = inputs.model_copy(update={"settings": (*inputs.settings, f"{CHAT_TEMPLATE}=true")})
    if compare:
        models = [compare, *models]
    option = "--benchmarks" if tasks is None else "--tasks"
    chosen = () if benchmarks is None else chosen_names(option, benchmarks, offered("evaluate", benchmarks))
    pieces = [] if lengths is None else lengths.replace(" ", "").split(",")
    is_auto = pieces == ["auto"]
    if not (is_auto or all(piece.isdecimal() and int(piece) > 1 for piece in pieces)):
        raise UserError(f"--lengths {lengths}: not lengths in tokens; write for example 4096,8192, or auto")
    asked = None if is_auto else map(int, pieces)
    planned, wanted = plan_models(models, how, inputs, place, chosen, asked, check=not dry_run)
    if dry_run:
        from tokenweight.commands.plan import plan_rows, print_plan

        parts, execution = {planned.name: planned.graph}, default_execution(how.scale)
        content, _ = plan_rows(planned.name, how.scale, parts, (), place, execution)
        print_json(content) if as_json else print_plan(content)
        return
    corpus = planned.each_recipe[0].evaluation.perplexity.corpus
    if wanted and isinstance(corpus, FilesCorpus):
        n, protocol = document_count(corpus, "validation"), corpus.validation_documents
        if n < protocol:
            note(f"--corpus {inputs.corpus}: {n} documents, the protocol has {protocol}; all of them are read")
    make_and_show([planned], place, options, partial(evaluation_execution, how), as_json=as_json)
    if output_path is not None:
        from tokenweight.reports.harness import write_harness_results

        written = write_harness_results(planned.manifest, place.root, output_path, "--output-path", how.limit)
        (note if as_json else print)(*map(str, written))


@command
def ruler_generate(
    *,
    tokenizer: Path,
    task: str,
    length: int,
    out: Path,
    samples: AtLeastOne = 500,
    seed: Seed = 42,
    profile: Profile = "paper",
    haystack: Path | None = None,
    squad: Path | None = None,
    hotpotqa: Path | None = None,
) -> None:
    from tokenweight.evaluation.ruler.generator import generate

    sources = {"haystack": haystack, "squad": squad, "hotpotqa": hotpotqa}
    for name, path in sources.items():
        if path is not None and not path.exists():  # whether or not this task reads it
            raise UserError(f"--{name}: {path} does not exist; correct the path, or leave the option out")
    if out.is_dir():
        raise UserError(f"--out {out}: is a directory; give a file, e.g. {out / 'samples.jsonl'}")
    check_writable("--out", out.parent)
    try:
        rows = generate(task, length, samples, seed, tokenizer, sources, profile)
    except UserError as error:
        # The library's words are those of recipes: ruler.lengths_tokens is --length here, ruler.squad --squad.
        message = str(error).replace("ruler.lengths_tokens:", "--length:")
        raise UserError(re.sub(r"^ruler[. ](task|samples|haystack|squad|hotpotqa)\b", r"--\1", message)) from error
    write_files({out: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)}, f"--out {out}", "another")
    fill = [row["length"] / length for row in rows]
    print(f"{task} at {length} tokens: {len(rows)} samples, fill ratio mean {fmean(fill):.4f}, min {min(fill):.4f}")
    print(str(out))


@command
def data_fetch(name: Literal["all", "squad", "hotpotqa", "essays"] = "all", /, *, to: Path = DIRECTORY) -> None:
    check_packages()
    failures = []
    for one in NAMES if name == "all" else (name,):
        try:
            fetch(one, to, print)
        except UserError as error:
            message = str(error)
            failures.append(message if message.startswith(one) else f"{one}: {message}")
    if failures:
        raise UserError("; ".join(failures))


@command
def rescore_longbench(
    directory: Path, /, *, first_line: Literal["lceg", "thudm"] = "lceg", as_json: bool = False
) -> None:
    _rescore("longbench", directory, as_json, first_line=first_line)


@command
def rescore_ruler(directory: Path, /, *, data: Path | None = None, as_json: bool = False) -> None:
    _rescore("ruler", directory, as_json, data=data)


@command
def rescore_bbh(directory: Path, /, *, as_json: bool = False) -> None:
    _rescore("bbh", directory, as_json)


def _rescore(benchmark: str, directory: Path, as_json: bool, **options: Any) -> None:
    from tokenweight.evaluation import rescoring
    from tokenweight.webpage import plain_environment

    runs = rescoring.rescore(benchmark, directory, **options)
    template = plain_environment(Path(rescoring.__file__).parent).get_template("rescoring.jinja")
    print_json(runs) if as_json else print(template.render(benchmark=benchmark, runs=runs).rstrip())
