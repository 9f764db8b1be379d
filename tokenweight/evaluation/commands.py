"""The commands `ruler generate`, `rescore` and `data fetch`: their options, and what they print."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

import typer

from tokenweight.errors import UserError
from tokenweight.evaluation.longbench.tasks import FirstLine
from tokenweight.evaluation.ruler.downloads import DIRECTORY, NAMES, check_packages, fetch
from tokenweight.evaluation.ruler.tasks import Profile

rescore = typer.Typer(help="Score stored outputs again, without a model.", add_completion=False)
data = typer.Typer(help="Published data that the evaluation needs.", add_completion=False)
ruler = typer.Typer(help="RULER: samples of its 13 tasks for any tokenizer and length.", add_completion=False)

# What the library calls its arguments (they come from recipes as well), and what this command calls them.
_OPTIONS = {
    "ruler task": "--task",
    "ruler.lengths_tokens:": "--length:",
    "ruler.samples:": "--samples:",
    "ruler.haystack:": "--haystack:",
    "ruler.squad:": "--squad:",
    "ruler.hotpotqa:": "--hotpotqa:",
}


@ruler.callback()
def _group() -> None:
    """Keeps `generate` a command of its own: with one command alone typer would leave its name out."""


@ruler.command("generate")
def generate_command(
    tokenizer: Annotated[Path, typer.Option(help="Directory that transformers can load, or with tokenizer.json.")],
    task: Annotated[str, typer.Option(help="One of the 13 tasks, e.g. niah_single_1, vt, cwe, fwe, qa_1.")],
    length: Annotated[int, typer.Option(help="Tokens: BOS + input + answer prefix + generation, at least 512.")],
    out: Annotated[Path, typer.Option(help="The JSON Lines file to write.")],
    samples: Annotated[int, typer.Option(min=1, help="How many.")] = 500,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Same arguments, same bytes.")] = 42,
    profile: Annotated[
        Profile, typer.Option(help="paper: 2024; current: fuller contexts; official-2024: its bytes.")
    ] = "paper",
    haystack: Annotated[
        Path | None, typer.Option(help="Directory of .txt, or JSON with `text`. Default: shipped.")
    ] = None,
    squad: Annotated[Path | None, typer.Option(help="SQuAD dev-v2.0 JSON. Default: shipped.")] = None,
    hotpotqa: Annotated[Path | None, typer.Option(help="HotpotQA dev-distractor JSON. Default: shipped.")] = None,
) -> None:
    """Write samples of one task as JSON Lines: index, input, answer_prefix, outputs, length."""
    from tokenweight.evaluation.ruler.generator import check_request, generate
    from tokenweight.evaluation.ruler.sources import Sources
    from tokenweight.evaluation.ruler.writing import check_writable, write_lines

    for option, path in (("--haystack", haystack), ("--squad", squad), ("--hotpotqa", hotpotqa)):
        if path is not None and not path.exists():  # whether or not this task reads it
            raise UserError(f"{option}: {path} does not exist; mend the path, or leave the option out")
    sources = Sources(haystack, squad, hotpotqa)
    check_writable(out)
    try:
        check_request(task, length, tokenizer, sources)
        rows = generate(task, length, samples, seed, tokenizer, sources, profile)
    except UserError as error:
        raise UserError(_in_options(str(error))) from error
    write_lines(rows, out)
    fill = [row["length"] / length for row in rows]
    typer.echo(
        f"{task} at {length} tokens: {len(rows)} samples, fill ratio mean {fmean(fill):.4f}, min {min(fill):.4f}"
    )
    typer.echo(str(out))


@data.callback()
def _data_group() -> None:
    """Keeps `fetch` a command of its own."""


@data.command("fetch")
def fetch_command(
    name: Annotated[
        Literal["all", "squad", "hotpotqa", "essays"], typer.Argument(help="Which of RULER's sources.")
    ] = "all",
    to: Annotated[Path, typer.Option(help="Directory; scale paper looks into the default.")] = DIRECTORY,
) -> None:
    """Fetch RULER's sources from where they are published, and check their SHA-256."""
    check_packages()
    failures = []
    for one in NAMES if name == "all" else (name,):
        try:
            fetch(one, to, typer.echo)
        except UserError as error:
            message = str(error)
            failures.append(message if message.startswith(one) else f"{one}: {message}")
    if failures:
        raise UserError("; ".join(failures))


def _in_options(message: str) -> str:
    """The same message in this command's words."""
    for name, option in _OPTIONS.items():
        if message.startswith(name):
            return option + message.removeprefix(name)
    return message


@rescore.command("longbench")
def longbench_command(
    directory: Annotated[Path, typer.Argument(help="Folder of <task>.jsonl with pred, answers, all_classes.")],
    first_line: Annotated[
        FirstLine, typer.Option(help="Which tasks score the first line only: LCEG's, as the paper, or LongBench's own.")
    ] = "lceg",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score predictions of LongBench's 16 English tasks; beside the folder's result.json where there is one."""
    from tokenweight.evaluation.longbench.rescore import other_files, published
    from tokenweight.evaluation.longbench.rescore import rescore as score
    from tokenweight.evaluation.longbench.summary import summary, table

    known = published(directory)
    content = summary(score(directory, first_line), known, first_line, other_files(directory))
    typer.echo(json.dumps(content, indent=1) if as_json else table(content))


@rescore.command("bbh")
def bbh_command(
    directory: Annotated[
        Path, typer.Argument(help="Folder of lm-eval's samples_*.jsonl, or a store of per-sample rows.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score outputs of BIG-Bench-Hard by lm-eval's strict pattern and a tolerant one, micro-averaged."""
    from tokenweight.evaluation.bbh_rescore import rescore as score
    from tokenweight.evaluation.bbh_rescore import summary, table

    content = summary(score(directory))
    typer.echo(json.dumps(content, indent=1) if as_json else table(content))
