"""Whether a run that is killed on its way ends with the table of an undisturbed one, artifact by artifact.

    python benchmarks/killed_run.py --scratch DIR --kills 260,330 [--out FILE.json] -- reproduce table-3 --scale paper ...

Runs `tokenweight` with these arguments twice, each with a store and results of its own: once undisturbed, once killed
(SIGKILL to the whole tree of processes) so many seconds after each start and started again, to its end at last. Side by
side where there are two GPUs, each run seeing one of them; else one after the other. On GPUs only a run with
`--execution deterministic=true` repeats every digit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import psutil
from cyclopts import Parameter

HOLD_TIMES = ("summary.json", "metrics.jsonl", "tensorboard/")  # of one run, not of its numbers


def start(arguments: tuple[str, ...], folder: Path, gpu: int | None) -> subprocess.Popen[bytes]:
    """One run of the command, whose lines go to `folder`/log."""
    command = [sys.executable, "-c", "from tokenweight.cli import main; main()", *arguments]
    command += ["--store", str(folder / "store"), "--out", str(folder / "results")]
    environment = os.environ | ({} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)})
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


def run(arguments: tuple[str, ...], folder: Path, gpu: int | None, kills: list[float]) -> dict[str, Any]:
    """Run to the end, killed on the way; what was going on at each kill, what was left of it, and the seconds in all."""
    folder.mkdir(parents=True, exist_ok=True)
    began, killed = time.monotonic(), []
    for seconds in kills:
        process = start(arguments, folder, gpu)
        try:
            code = process.wait(seconds)
            raise SystemExit(f"{folder}: ended ({code}) before {seconds} s; see its log, or kill it earlier")
        except subprocess.TimeoutExpired:
            tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for one in tree:
            if one.is_running():
                one.kill()
        process.wait()
        _, left = psutil.wait_procs(tree, 30)
        last = ((folder / "log").read_text(errors="replace").splitlines() or [""])[-1]
        killed.append({"seconds": seconds, "processes": len(tree), "left_after_30_s": len(left), "last_line": last})
    code = start(arguments, folder, gpu).wait()
    return {"exit": code, "seconds": round(time.monotonic() - began, 1), "kills": killed}


def differences(one: Path, other: Path) -> tuple[int, list[str]]:
    """How many artifacts both stores have, and which differ in more than times, or are in one alone."""
    found = [
        {p.parent.relative_to(store).as_posix(): p for p in store.glob("*/*/record.json")} for store in (one, other)
    ]
    outputs = [
        {
            name: {file: said["sha256"] for file, said in json.loads(path.read_text())["outputs"].items()}
            for name, path in records.items()
        }
        for records in found
    ]
    unlike = [f"{name}: in one store alone" for name in sorted(outputs[0].keys() ^ outputs[1].keys())]
    common = sorted(outputs[0].keys() & outputs[1].keys())
    for name in common:
        first, second = outputs[0][name], outputs[1][name]
        files = [file for file in sorted(first | second) if first.get(file) != second.get(file)]
        if files := [file for file in files if not file.startswith(HOLD_TIMES)]:
            unlike.append(f"{name}: {', '.join(files)}")
    return len(common), unlike


def main(
    *arguments: Annotated[str, Parameter(help="Of tokenweight, behind --.", allow_leading_hyphen=True)],
    scratch: Annotated[Path, Parameter(help="An empty folder: stores, results and logs go here.")],
    kills: Annotated[str, Parameter(help="Seconds after each start, separated by commas.")],
    out: Annotated[Path | None, Parameter(help="JSON to write.")] = None,
) -> None:
    """Run both, compare, print; exit code 1 where they differ."""
    import torch

    gpus = [0, 1] if torch.cuda.device_count() > 1 else [None, None]
    folders = [scratch / "undisturbed", scratch / "killed"]
    plans = [[], [float(seconds) for seconds in kills.split(",")]]
    with ThreadPoolExecutor(2 if gpus[1] else 1) as pool:
        runs = list(pool.map(run, [arguments] * 2, folders, gpus, plans))
    count, unlike = differences(*(folder / "store" for folder in folders))
    tables = sorted(file.relative_to(folders[0]) for file in (folders[0] / "results").rglob("*.csv"))
    other_tables = [str(file) for file in tables if len({(f / file).read_bytes() for f in folders}) > 1]
    content = {
        "arguments": arguments, "undisturbed": runs[0], "killed": runs[1], "artifacts": count, "unlike": unlike,
        "tables": len(tables), "tables_unlike": other_tables,
    }  # fmt: skip
    print(json.dumps(content, indent=1))
    if out:
        out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(bool(unlike or other_tables or not tables or any(one["exit"] for one in runs)))


if __name__ == "__main__":
    cyclopts.run(main)
