"""The command `tokenweight inspect`: its options, and what it prints."""

import json
from pathlib import Path

from tokenweight.commands.command import command
from tokenweight.inspection.request import Options


@command
def inspect_text(
    checkpoint: Path, text: Path, /, *, out: Path = Path("inspection"), options: Options, as_json: bool = False
) -> None:
    from tokenweight.files import check_writable, write_files
    from tokenweight.inspection.compute import inspect, page, summary, table

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
    print(summary(content, span, options) + "\n".join(map(str, files)))
