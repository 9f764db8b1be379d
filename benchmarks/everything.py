"""The published figures of one machine, each by its own script, and one table of them beside what was aimed at.

    python benchmarks/everything.py --books DIR --mmlu DIR [--gpus 2] [--seconds 600] [--only NAME ...] [--out DIR]
    python benchmarks/everything.py --table [--out DIR]

Benchmarks run one after another; each writes DIR/NAME.json with its command, seconds and commit. One whose file is of this
commit is left out, and none begins that would not end within --seconds: run the same command again for the next piece.
The table (DIR/everything.md) shows what the files say, with their commits; what was not measured is a dash.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import cyclopts
from cyclopts import Parameter

from tokenweight.pipeline.store import package_versions

HERE = Path(__file__).parent
PYTHON = (sys.executable,)
TORCHRUN, ON_TWO = ((*PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", n) for n in "12")
COST = ("training_cost.py", "--fused", "--checkpointing", "keep_projections")
KEEP = ("--checkpointing", "keep_attention")
LONG = ("long_context.py", "--fused", "--weightings", "uniform;unfrozen dense", "--steps", "2")
MINI = ("evaluation.py", "--scale", "mini", "--config", "mini", "--length", "4096", "--tokenizer", "books-8k")


class Benchmark(NamedTuple):
    command: tuple[str, ...]
    seconds: int  # on one H200, loading included
    needs: tuple[str, ...] = ()  # of what is given: books, mmlu
    gpus: int = 1


BENCHMARKS = {
    "heads": Benchmark((*PYTHON, "heads.py"), 70),
    "attention": Benchmark((*PYTHON, "attention.py"), 60),
    "llama3-8b": Benchmark((*PYTHON, *COST, "--weak-scorer", "llama3.2-1b"), 150),
    "phi-2": Benchmark((*PYTHON, "training_cost.py", "--model", "phi-2"), 120),
    "profile": Benchmark((*PYTHON, "profile_step.py", "--fused"), 60),
    "scoring": Benchmark((*PYTHON, "scoring.py"), 120),
    "1b-256k": Benchmark((*TORCHRUN, *LONG, "--model", "llama3.2-1b", "--lengths", "262144", *KEEP), 240),
    "1b-512k": Benchmark((*TORCHRUN, *LONG, "--model", "llama3.2-1b", "--lengths", "524288", *KEEP, "--offload"), 800),
    "1b-1m": Benchmark(
        (*TORCHRUN, *LONG, "--model", "llama3.2-1b", "--layers", "2", "--lengths", str(2**20), *KEEP, "--offload"), 420
    ),
    "8b-256k": Benchmark(
        (*TORCHRUN, *LONG, "--model", "llama3-8b", "--layers", "4", "--lengths", "262144", *KEEP), 180
    ),
    "small-model": Benchmark((*PYTHON, "small_model.py", "--steps", "30", "--skip", "12"), 150),
    "evaluation-mini": Benchmark((*PYTHON, *MINI), 130, ("books", "mmlu")),
    "evaluation-mini-8": Benchmark((*PYTHON, *MINI, "--side-by-side", "8"), 240, ("books", "mmlu")),
    "8b-256k-two": Benchmark((*ON_TWO, *LONG, "--model", "llama3-8b", "--lengths", "262144", "--offload"), 500, gpus=2),
    "llama3-8b-two": Benchmark((*ON_TWO, "zero3.py", *COST[1:], "--scoring", "--weak-scorer", "llama3.2-1b"), 300, gpus=2),
}  # fmt: skip


class Aim(NamedTuple):
    figure: str
    benchmark: str
    value: Callable[[Any], float]
    aim: float | None = None
    less: bool = True  # is better


def _row(weighting: str, name: str) -> Callable[[Any], float]:
    return lambda found: float(next(row[name] for row in found["rows"] if row["weighting"] == weighting))


def _ratio(variant: str) -> Callable[[Any], float]:
    return lambda found: float(found["ratios"][variant])


def _of_head(name: str) -> Callable[[Any], float]:
    return lambda found: float(found["heads"]["ours, fused"][name])


def _compiled(training: str) -> Callable[[Any], float]:
    return lambda found: float(found["rows"][f"{training}, layers compiled"]["MFU"])


def _first_model(found: Any) -> float:
    return statistics.fmean(found["process_seconds"]["first"])


AIMS = (
    Aim("fused head: rms error of the NLL, nats", "heads", _of_head("nll_rms_nats"), 1e-4),
    Aim("fused head, forward and backward, TFLOP/s", "heads", _of_head("both_tflops"), 500, less=False),
    Aim("8B, 32k: unfrozen dense / uniform", "llama3-8b", _ratio("unfrozen dense"), 1.10),
    Aim("8B, 32k: the same, fp8 scoring", "llama3-8b", _ratio("unfrozen dense, fp8 scoring")),
    Aim("8B, 32k: unfrozen sparse / uniform", "llama3-8b", _ratio("unfrozen sparse 0.2")),
    Aim("8B, 32k: scores ready / uniform", "llama3-8b", _ratio("frozen, scores ready"), 1.01),
    Aim("8B, 32k: MFU", "llama3-8b", lambda found: found["mfu_uniform"], 0.45, less=False),
    Aim("1B, 256k: MFU", "1b-256k", _row("uniform", "mfu"), 0.42, less=False),
    Aim("1B, 256k: unfrozen dense / uniform", "1b-256k", _row("unfrozen dense", "ratio_to_uniform")),
    Aim("8B of 4 layers, 256k: MFU", "8b-256k", _row("uniform", "mfu"), 0.42, less=False),
    Aim("8B of 4 layers, 256k: unfrozen dense / uniform", "8b-256k", _row("unfrozen dense", "ratio_to_uniform")),
    Aim("1B, 512k: unfrozen dense / uniform", "1b-512k", _row("unfrozen dense", "ratio_to_uniform"), 1.03),
    Aim("1B of 2 layers, 1M: unfrozen dense / uniform", "1b-1m", _row("unfrozen dense", "ratio_to_uniform")),
    Aim("8B on two GPUs, 32k: unfrozen dense / uniform", "llama3-8b-two", _ratio("unfrozen dense"), 1.10),
    Aim("8B on two GPUs, 32k: MFU", "llama3-8b-two", lambda found: found["mfu_uniform"], 0.45, less=False),
    Aim("8B on two GPUs, 256k: unfrozen dense / uniform", "8b-256k-two", _row("unfrozen dense", "ratio_to_uniform")),
    Aim("8B on two GPUs, 256k: MFU", "8b-256k-two", _row("uniform", "mfu"), 0.42, less=False),
    Aim("scale mini: MFU of pre-training", "small-model", _compiled("pre-training"), 0.35, less=False),
    Aim("scale mini: MFU of continued training", "small-model", _compiled("table-3/uniform"), 0.25, less=False),
    Aim("scale mini: the same, unfrozen sparse", "small-model", _compiled("table-3/unfrozen-sparse"), 0.25, less=False),
    Aim("scale mini's evaluation, 36 M parameters, one process: seconds", "evaluation-mini", _first_model, 100),
)


def main(
    books: Annotated[Path | None, Parameter(help="Directory of .txt, for the evaluations.")] = None,
    mmlu: Annotated[Path | None, Parameter(help="Directory of MMLU, for the evaluations.")] = None,
    gpus: Annotated[int, Parameter(help="GPUs of this machine: what needs more is left out.")] = 1,
    seconds: Annotated[float, Parameter(help="Begin nothing that would end later.")] = 600,
    only: Annotated[list[str] | None, Parameter(help=f"Of {', '.join(BENCHMARKS)}.")] = None,
    commit: Annotated[str, Parameter(help="Where there is no git: the commit of this tree.")] = "",
    table: Annotated[bool, Parameter(help="Only write the table.")] = False,
    out: Annotated[Path, Parameter(help="Directory of the files.")] = HERE / "results" / "everything",
) -> None:
    """Run what is not there yet, then write the table."""
    commit = commit or _commit()
    if unknown := set(only or ()) - BENCHMARKS.keys():
        raise SystemExit(f"--only: no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    end, given = time.monotonic() + seconds, {"books": books, "mmlu": mmlu}
    out.mkdir(parents=True, exist_ok=True)
    for name in () if table else only or BENCHMARKS:
        benchmark, file = BENCHMARKS[name], out / f"{name}.json"
        if file.exists() and json.loads(file.read_text())["commit"] == commit:
            continue
        if benchmark.gpus > gpus:
            print(f"{name}: not run, needs {benchmark.gpus} GPUs")
        elif missing := [one for one in benchmark.needs if given[one] is None]:
            print(f"{name}: not run, give --{' and --'.join(missing)}")
        elif time.monotonic() + benchmark.seconds > end:
            print(f"{name}: not run, takes some {benchmark.seconds} s; run again, or give --seconds")
        else:
            _run(name, benchmark, [f"--{one}={given[one]}" for one in benchmark.needs], commit, file)
    (out / "everything.md").write_text(_table(out))
    print(_table(out))


def _run(name: str, benchmark: Benchmark, given: list[str], commit: str, file: Path) -> None:
    """Run one benchmark and add to its file what made it; a failed one leaves its log and no file."""
    command, began = list(benchmark.command), time.monotonic()
    script = next(i for i, word in enumerate(command) if word.endswith(".py"))
    command[script] = str(HERE / command[script])
    scratch = [f"--scratch={file.with_suffix('.scratch')}"] if benchmark.needs else []
    new, log = file.with_suffix(".new"), file.with_suffix(".log")
    with log.open("w") as stream:
        code = subprocess.run([*command, *given, *scratch, "--out", str(new)], stdout=stream, stderr=stream).returncode
    took = round(time.monotonic() - began, 1)
    if code or not new.exists():
        print(f"{name}: failed after {took} s, see {log}")
        return
    said = " ".join(["python", *benchmark.command[1:]])
    content = {
        "command": said,
        "commit": commit,
        "took_seconds": took,
        "versions": package_versions(),
        **json.loads(new.read_text()),
    }
    file.write_text(json.dumps(content, indent=1) + "\n")
    new.unlink()
    print(f"{name}: {took} s", flush=True)


def _table(out: Path) -> str:
    lines = ["| figure | aimed at | measured | reached | commit | of |", "| --- | ---: | ---: | --- | --- | --- |"]
    for aim in AIMS:
        file = out / f"{aim.benchmark}.json"
        bound = "-" if aim.aim is None else f"{'<=' if aim.less else '>='} {aim.aim:g}"
        measured, reached, commit = "-", "-", "-"
        if file.exists():
            found = json.loads(file.read_text())
            value, commit = float(aim.value(found)), found["commit"][:7]
            if aim.aim is not None:
                reached = "yes" if (value <= aim.aim if aim.less else value >= aim.aim) else "no"
            measured = f"{value:.1e}" if value < 0.01 else f"{value:.3f}" if value < 10 else f"{value:.0f}"
        link = f"[{aim.benchmark}]({aim.benchmark}.json)" if file.exists() else aim.benchmark
        lines.append(f"| {aim.figure} | {bound} | {measured} | {reached} | {commit} | {link} |")
    return "\n".join(lines) + "\n"


def _commit() -> str:
    git = subprocess.run(["git", "-C", str(HERE), "rev-parse", "HEAD"], capture_output=True, text=True)
    return git.stdout.strip() or "unknown"


if __name__ == "__main__":
    cyclopts.run(main)
