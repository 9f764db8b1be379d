"""The commands `evaluate`, `ruler generate`, `rescore` and `data fetch`: their options, and what they print."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from tokenweight.commands.command import command, print_json
from tokenweight.commands.reproduce import make_and_show
from tokenweight.errors import UserError
from tokenweight.evaluation.longbench.tasks import FirstLine
from tokenweight.evaluation.ruler.downloads import DIRECTORY, NAMES, check_packages, fetch
from tokenweight.evaluation.ruler.tasks import Profile
from tokenweight.files import check_writable, write_files
from tokenweight.flat import Part
from tokenweight.pipeline.store import open_store
from tokenweight.recipes.options import EvaluationInputs, JsonOption, ModelOptions, RunOptions


@command
def evaluate(
    *,
    models: Annotated[list[str], Field(description="Checkpoint directory or hub id; repeat for more rows")],
    benchmarks: Annotated[
        str | None,
        Field(
            description="Comma-separated benchmarks of ruler,longbench,mmlu,bbh,perplexity,pmi. Default: all but pmi"
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        Field(
            description="Comma-separated lengths of RULER and perplexity in tokens, for example 4096,8192. Default: what fits"
        ),
    ] = None,
    inputs: EvaluationInputs,
    how: ModelOptions,
    options: Annotated[RunOptions, Part(RunOptions, "store", "out")],
    as_json: JsonOption = False,
) -> None:
    """The paper's evaluation of any models as they are."""
    from tokenweight.evaluation.backends import evaluation_execution
    from tokenweight.tasks.models import plan_models

    place = open_store(options.store)
    planned, _ = plan_models(models, how, inputs, place, benchmarks, lengths)
    make_and_show([planned], place, options, partial(evaluation_execution, how), as_json=as_json)


@command
def ruler_generate(
    *,
    tokenizer: Annotated[Path, Field(description="Directory that transformers can load, or that has a tokenizer.json")],
    task: Annotated[str, Field(description="One of the 13 tasks, for example niah_single_1, vt, cwe, fwe, qa_1")],
    length: Annotated[
        int, Field(description="Length in tokens: BOS, input, answer prefix and generation; at least 512")
    ],
    out: Annotated[Path, Field(description="JSON Lines file to write")],
    samples: Annotated[int, Field(ge=1, description="Number of samples")] = 500,
    seed: Annotated[int, Field(ge=0, le=2**32 - 1, description="Seed; the same arguments give the same bytes")] = 42,
    profile: Annotated[
        Profile,
        Field(description="paper: the program of 2024, never longer than the length; official-2024: its bytes"),
    ] = "paper",
    haystack: Annotated[
        Path | None, Field(description="Directory of .txt files, or JSON with `text`. Default: the shipped text")
    ] = None,
    squad: Annotated[Path | None, Field(description="SQuAD's dev-v2.0 JSON. Default: the shipped questions")] = None,
    hotpotqa: Annotated[
        Path | None, Field(description="HotpotQA's dev-distractor JSON. Default: the shipped questions")
    ] = None,
) -> None:
    """Samples of one task."""
    from tokenweight.evaluation.ruler.generator import generate
    from tokenweight.evaluation.ruler.sources import Sources

    for option, path in (("--haystack", haystack), ("--squad", squad), ("--hotpotqa", hotpotqa)):
        if path is not None and not path.exists():  # whether or not this task reads it
            raise UserError(f"{option}: {path} does not exist; mend the path, or leave the option out")
    sources = Sources(haystack, squad, hotpotqa)
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
def data_fetch(
    name: Annotated[
        Literal["all", "squad", "hotpotqa", "essays"], Field(description="Which of RULER's sources to fetch")
    ] = "all",
    /,
    *,
    to: Annotated[Path, Field(description="Directory to write to; scale paper reads the default")] = DIRECTORY,
) -> None:
    """RULER's sources."""
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
    directory: Annotated[Path, Field(description="Folder of <task>.jsonl with pred, answers, all_classes")],
    /,
    *,
    first_line: Annotated[
        FirstLine,
        Field(description="Whose tasks score the first line alone: LCEG's, as in the paper, or LongBench's own"),
    ] = "lceg",
    as_json: JsonOption = False,
) -> None:
    """Predictions of LongBench, scored again."""
    from tokenweight.evaluation.longbench.rescore import summary, table

    content = summary(directory, first_line)
    print_json(content) if as_json else print(table(content))


@command
def rescore_bbh(
    directory: Annotated[Path, Field(description="Folder of lm-eval's samples_*.jsonl, or a store of per-sample rows")],
    /,
    *,
    as_json: JsonOption = False,
) -> None:
    """Outputs of BIG-Bench-Hard, scored again."""
    from tokenweight.evaluation.bbh import as_text, summary

    content = summary(directory)
    print_json(content) if as_json else print(as_text(content))
