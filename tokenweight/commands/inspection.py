"""The command `tokenweight inspect`: its options, and what it prints."""

import json
from pathlib import Path

from tokenweight.commands.command import command
from tokenweight.inspection.request import Options


@command
def inspect_text(
    checkpoint: Path,
    text: Path,
    /,
    *,
    out: Path = Path("inspection"),
    options: Options,
    as_json: bool = False,
) -> None:
    """Every token's losses and weight."""
    from tokenweight.files import check_writable, write_files
    from tokenweight.inspection.compute import in_words, inspect, page, table

    check_writable("--out", out)
    content, span = inspect(checkpoint, text, options)
    as_text = json.dumps(content, ensure_ascii=False)
    files = {
        out / "inspection.html": page(content),
        out / "span.tex": table(content, span),
        out / "inspection.json": as_text + "\n",
    }
    write_files(files, f"--out {out}", "another")
    if as_json:
        print(as_text)
        return
    words, summary, about = in_words(content), content["summary"], content["text"]
    part = "the complete text" if about["whole_text"] else f"the first {about['characters']:,} characters of the text"
    given = {"--short-tokens": options.short_tokens, "--stride-tokens": options.stride_tokens}
    defaults = " and ".join(option for option, value in given.items() if value is None)
    print(
        f"{content['checkpoint']['name']} on {about['name']}: {summary['tokens']:,} tokens, {part}",
        f"Short context: {words['scorer']}, {words['windows']}" + (f" (default {defaults})" if defaults else ""),
        f"Weights: {words['weighting']}",
        f"Mean NLL long {summary['mean_long_nll']:.3f}, short {summary['mean_short_nll']:.3f}; "
        f"mean |PMI| {summary['mean_abs_pmi']:.3f}; weight above 1: {summary['share_above_1']:.1%}, "
        f"zero: {summary['share_zero']:.1%}",
        f"Tokens of the table: {span.start}:{span.stop}",
        *files,
        sep="\n",
    )
