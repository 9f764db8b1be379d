"""Kill -9 of a run's flow, worker, rank or temporary server: none is left, and the next run's table is an undisturbed one's."""

import csv
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests_pipeline import run, running_in, small_settings

SECONDS = 120.0
RUN = (
    "reproduce", "table-3/uniform@perplexity", *small_settings(), "--set", "training.steps=8",
    "--set", "evaluation.perplexity.lengths_tokens=[1024]", "--set", "evaluation.perplexity.documents=1",
    "--launcher", "torchrun", "--processes", "2", "--execution", "micro_batch_sequences=1",
)  # fmt: skip


def named(processes: list[psutil.Process], part: str) -> list[psutil.Process]:
    found = []
    for process in processes:
        with suppress(psutil.Error):
            if part in " ".join(process.cmdline()):
                found.append(process)
    return found


def rank(flow: int, home: Path) -> psutil.Process:
    launched = named(running_in(home), "-m tokenweight.training.launch")
    return next(process for process in launched if not any("nproc" in part for part in process.cmdline()))


def worker(flow: int, home: Path) -> psutil.Process:
    """The slot's process, two or more above the rank."""
    return next(parent for parent in rank(flow, home).parents() if "forkserver" in " ".join(parent.cmdline()))


def server(flow: int, home: Path) -> psutil.Process:
    return named(running_in(home), "prefect.server")[0]


def main_process(flow: int, home: Path) -> psutil.Process:
    return psutil.Process(flow)


def table(home: Path) -> list[dict[str, str]]:
    with (home / "results" / "smoke" / "table-3-uniform.csv").open() as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    home = tmp_path_factory.mktemp("undisturbed")
    done = run(*RUN, cwd=home)
    assert done.returncode == 0, done.stderr[-3000:]
    return table(home)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "code"),
    [(main_process, -signal.SIGKILL), (worker, 1), (rank, 1), (server, 1)],
    ids=["flow", "worker", "rank", "server"],
)
def test_nothing_is_left_behind_and_the_next_run_completes_it(
    victim: Callable[[int, Path], psutil.Process],
    code: int,
    tmp_path: Path,
    started: Callable,
    undisturbed: list[dict[str, str]],
) -> None:
    process = started(*RUN, cwd=tmp_path)
    deadline = time.monotonic() + 600
    while not any(file.read_text().count("\n") > 2 for file in tmp_path.glob("store/train/.*.partial/metrics.jsonl")):
        assert process.poll() is None, (tmp_path / "log-0").read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(victim(process.pid, tmp_path).pid, signal.SIGKILL)
    assert process.wait(300) == code, (tmp_path / "log-0").read_text()[-3000:]
    end = time.monotonic() + SECONDS
    while left := running_in(tmp_path):
        assert time.monotonic() < end, [process.cmdline() for process in left]
        time.sleep(0.2)
    text = (tmp_path / "log-0").read_text()
    assert "Traceback" not in text
    if code == 1:
        assert text.rstrip().splitlines()[-1].startswith("error: ")
    done = run(*RUN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert table(tmp_path) == undisturbed
