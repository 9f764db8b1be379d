"""The command `tokenweight inspect`: its options, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.errors import UserError
from tokenweight.recipes.options import JsonOption
from tokenweight.recipes.schema import ScoreName

if TYPE_CHECKING:
    from tokenweight.inspection.request import Request

OUT = Path("inspection")


@command
def inspect_text(
    checkpoint: Annotated[Path, Field(description="Checkpoint directory of transformers, with its tokenizer")],
    text: Annotated[Path, Field(description="Text file, UTF-8")],
    /,
    *,
    out: Annotated[Path, Field(description="Directory of the page, the table and the numbers")] = OUT,
    scorer: Annotated[
        Path | None,
        Field(description="Checkpoint of a frozen scorer with the same vocabulary. Default: the checkpoint itself"),
    ] = None,
    long_tokens: Annotated[
        int | None, Field(ge=2, description="Number of the text's tokens. Default: what fits the context")
    ] = None,
    short_tokens: Annotated[
        int | None, Field(ge=2, description="Length of the short context. Default: a quarter of the long one")
    ] = None,
    stride_tokens: Annotated[
        int | None, Field(ge=1, description="Tokens from one window to the next. Default: three quarters of the window")
    ] = None,
    score: Annotated[ScoreName, Field(description="Score function (Section 3.1)")] = "abs_pmi",
    postprocessing: Annotated[
        Literal["dense", "sparse", "raw", "uniform"], Field(description="From scores to weights (Section 3.2)")
    ] = "dense",
    lambda_: Annotated[
        float | None, Field(description="With dense: share of uniform weights. Default: 0, the scores alone")
    ] = None,
    kappa: Annotated[
        float | None, Field(description="With sparse: share of the tokens kept. Default: 0.2, with --scorer 0.4")
    ] = None,
    span: Annotated[
        str | None, Field(description="START:END, the tokens of the LaTeX table. Default: around the largest weight")
    ] = None,
    find: Annotated[
        str | None, Field(description="In place of --span: the tokens around the first place of this text")
    ] = None,
    seed: Annotated[int, Field(ge=0, description="Seed that settles ties of sparse weights")] = 0,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], Field(description="Where models run; auto: on a GPU where there is one")
    ] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Every token's losses and weight."""
    from tokenweight.files import check_writable
    from tokenweight.inspection.request import Request, parse_span, weighting_for

    if span is not None and find is not None:
        raise UserError("--span and --find: both choose the table's tokens; give one of them")
    wanted = parse_span(span) if span is not None else None
    check_writable("--out", out)
    request = Request(
        checkpoint=checkpoint,
        text=text,
        weighting=weighting_for(score, postprocessing, lambda_, kappa, frozen=scorer is not None),
        scorer=scorer,
        long_tokens=long_tokens,
        short_tokens=short_tokens,
        stride_tokens=stride_tokens,
        seed=seed,
        device=device,
    )
    content, shown, paths = run(request, out, wanted, find)
    if as_json:
        print(json.dumps(content, ensure_ascii=False))
        return
    print(*summary_lines(request, content, shown), *paths, sep="\n")


def run(request: Request, out: Path, span: range | None, find: str | None) -> tuple[dict[str, Any], range, list[Path]]:
    """Compute and write: the content of inspection.json, the tokens of the table, and the files' paths."""
    from tokenweight.corpus.token_texts import highest_span
    from tokenweight.files import write_files
    from tokenweight.inspection import html, latex
    from tokenweight.inspection.compute import prepare, score
    from tokenweight.inspection.report import report
    from tokenweight.inspection.request import chosen_span

    prepared = prepare(request)
    shown = chosen_span(prepared.tokens, span, find)
    inspection = score(prepared)
    shown = shown or highest_span(inspection.weights)
    content = report(inspection)
    files = {
        out / "inspection.html": html.render(content),
        out / "span.tex": latex.render(content, shown),
        out / "inspection.json": json.dumps(content, ensure_ascii=False) + "\n",
    }
    write_files(files, f"--out {out}", "another")
    return content, shown, list(files)


def summary_lines(request: Request, content: dict[str, Any], shown: range) -> list[str]:
    """What was computed, with the defaults that were taken, in a few lines."""
    from tokenweight.inspection.report import in_words

    words, summary, text = in_words(content), content["summary"], content["text"]
    part = "the complete text" if text["whole_text"] else f"the first {text['characters']:,} characters of the text"
    chosen = {
        "--short-tokens": request.short_tokens is None,
        "--stride-tokens": request.stride_tokens is None,
    }
    defaults = " and ".join(option for option, is_default in chosen.items() if is_default)
    return [
        f"{content['checkpoint']['name']} on {text['name']}: {summary['tokens']:,} tokens, {part}",
        f"Short context: {words['scorer']}, {words['windows']}" + (f" (default {defaults})" if defaults else ""),
        f"Weights: {words['weighting']}",
        f"Mean NLL long {summary['mean_long_nll']:.3f}, short {summary['mean_short_nll']:.3f}; "
        f"mean |PMI| {summary['mean_abs_pmi']:.3f}; weight above 1: {summary['share_above_1']:.1%}, "
        f"zero: {summary['share_zero']:.1%}",
        f"Tokens of the table: {shown.start}:{shown.stop}",
    ]
