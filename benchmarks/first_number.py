"""How long somebody waits for an evaluation's first number, imports included: until it is in the store, and in the table.

    python benchmarks/first_number.py --scratch DIR [--seconds 120] [--out FILE.json] -- --model DIR --scale paper --corpus DIR ...

Runs `tokenweight evaluate` with the arguments behind `--`, a store and results of its own under --scratch, and ends it as
soon as the CSV beside its table has a value, or after --seconds.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import pandas as pd
import psutil
import torch
from cyclopts import Parameter
from killed_run import start

from tokenweight.pipeline.store import package_versions


def has_value(results: Path) -> bool:
    """Whether a table there shows a number. It is replaced as a file, never read half."""
    return any(bool(pd.read_csv(file)["value"].notna().any()) for file in results.glob("*/evaluation-*.csv"))


def main(
    *evaluate: Annotated[str, Parameter(allow_leading_hyphen=True)],
    scratch: Path,
    seconds: float = 120,
    out: Annotated[Path | None, Parameter(help="JSON to write.")] = None,
) -> None:
    """Start, wait, end, print; what did not come in time is null."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    began, process = time.monotonic(), start(("evaluate", *evaluate), scratch, None)
    found: dict[str, float | None] = {"in_the_store": None, "in_the_table": None}
    is_over = False
    while found["in_the_table"] is None and not is_over:
        time.sleep(0.1)
        is_over = process.poll() is not None or time.monotonic() - began > seconds
        if found["in_the_store"] is None and any((scratch / "store").glob("evaluate/[!.]*/record.json")):
            found["in_the_store"] = round(time.monotonic() - began, 1)
        if has_value(scratch / "results"):
            found["in_the_table"] = round(time.monotonic() - began, 1)
    family: list[Any] = (
        [*psutil.Process(process.pid).children(recursive=True), process] if process.poll() is None else []
    )
    for one in family:
        one.kill()
    content: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": package_versions(), "arguments": evaluate, "seconds": found,
    }  # fmt: skip
    print(json.dumps(content, indent=1))
    if out:
        out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    cyclopts.run(main)
