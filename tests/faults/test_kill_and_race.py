"""Processes that are killed at any of their writes, and several runs at once: each stage is made once, the table is the same."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil
import pytest
from faults_laboratory import EXPERIMENT, Laboratory, started

sys.path.append(str(Path(__file__).parents[1] / "pipeline"))

from tests_pipeline import command, environment, running_in

from tokenweight.pipeline.locks import held_in

Tally = Callable[[str, str, str], None]
MOST_WRITES = 60  # of a process before it dies
KILLS = int(os.environ.get("FAULTS_KILLS", "100"))  # of whole runs, by make test-faults


def compared(copy: Laboratory, laboratory: Laboratory, out: Path) -> str:
    """What became of a store that was killed again and again, or shared."""
    if held_in(copy.store.root) or list(copy.store.root.glob("*/.*.partial")):
        return "losses"
    same = copy.contents() == laboratory.contents() and copy.table(out / "a") == laboratory.table(out / "b")
    return "made again" if same else "false numbers"


def killed_again_and_again(laboratory: Laboratory, root: Path, seed: int, kills: int, tally: Tally) -> None:
    random, copy, died = Random(seed), laboratory.at(root / "store"), 0
    for number in range(kills + 1):
        process = started(copy, dies_after=random.randint(1, MOST_WRITES) if number < kills else 0)
        process.join(600)
        assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
        died += process.exitcode != 0
    outcome = compared(copy, laboratory, root)
    begun = copy.begun()
    assert begun.keys() == {one.address for one in copy.artifacts}
    assert begun.total() <= len(begun) + died, "a kill repeats the unit that it hit, at most"
    assert died
    for _ in range(died):
        tally("kill", "a process at a write", outcome)


def test_a_process_that_is_killed_at_its_writes(laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    killed_again_and_again(laboratory, tmp_path, 0, 4, tally)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_processes_that_are_killed_at_their_writes(
    seed: int, laboratory: Laboratory, tmp_path: Path, tally: Tally
) -> None:
    killed_again_and_again(laboratory, tmp_path, seed, 20, tally)


def raced(laboratory: Laboratory, root: Path, runs: int, tally: Tally) -> None:
    """Runs of the one row, of the other, and of both; one of them is killed while it makes something."""
    copy, (one, other) = laboratory.at(root / "store"), laboratory.graph.runs
    wanted = ([one, other], [one], [other])
    dies = Random(runs).randint(10, MOST_WRITES)
    processes = [started(copy, wanted[number % 3], 0 if number else dies) for number in range(runs)]
    for process in processes:
        process.join(600)
    killed = [process for process in processes if process.exitcode != 0]
    assert [process.exitcode for process in killed] == [-signal.SIGKILL] * len(killed)
    started(copy).join(600)  # what only the killed one wanted
    begun = copy.begun()
    assert begun.total() <= len(begun) + len(killed), begun
    tally("race", f"{runs} runs at once", compared(copy, laboratory, root))


def test_runs_at_once(laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    raced(laboratory, tmp_path, 3, tally)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [2, 4, 5, 6, 7, 8])
def test_many_runs_at_once(runs: int, laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    raced(laboratory, tmp_path, runs, tally)


# --- Whole runs, with Prefect's temporary server, workers and ranks ---


class Home:
    """A directory with the experiment of the laboratory and its run, by two ranks."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        (directory / "books").mkdir()
        text = "The old tower by the lake was quiet, and the miller counted his sacks again that evening. "
        for number in range(12):
            (directory / "books" / f"{number}.txt").write_text(f"Book {number}. " + text * 400)
        text = EXPERIMENT.replace("CORPUS", "books").replace("steps: 1", "steps: 4")
        (directory / "laboratory.yaml").write_text(text.replace("[longbench, perplexity]", "[perplexity]"))
        self.directory, self.store = directory, directory / "store"

    def run(self) -> psutil.Popen:
        arguments = command(
            "reproduce", "laboratory.yaml", "--launcher", "torchrun", "--processes", "1",
            "--execution", "save_every_steps=1", "--execution", "micro_batch_sequences=1",
        )  # fmt: skip
        with (self.directory / "log").open("w") as log:
            return psutil.Popen(arguments, cwd=self.directory, env=environment(self.directory), stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    @property
    def table(self) -> bytes:
        return (self.directory / "results" / "smoke" / "laboratory.csv").read_bytes()

    def to_the_end(self) -> float:
        began = time.monotonic()
        assert self.run().wait(900) == 0, self.log[-3000:]
        return time.monotonic() - began


def role(process: psutil.Process, main: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    roles = ("prefect.server", "training.launch", "forkserver", "resource_tracker", "tokenweight.processes")
    return "the run" if process == main else next((name for name in roles if name in line), "another child")


@pytest.mark.slow
@pytest.mark.timeout(300 * KILLS)
def test_runs_that_are_killed(tmp_path: Path, tally: Tally) -> None:
    """KILLS times one process of a run's tree, whichever, gets one of three signals at some moment."""
    undisturbed, random = Home(tmp_path / "undisturbed"), Random(0)
    seconds, table = undisturbed.to_the_end(), undisturbed.table
    home, ended = Home(tmp_path / "0"), 0
    for number in range(KILLS):
        main = home.run()
        with suppress(psutil.TimeoutExpired):
            main.wait(random.uniform(0, seconds))
        victim, signal_number = main, random.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        what = "the run"
        with suppress(psutil.Error):
            victim = random.choice([main, *sorted(main.children(recursive=True), key=lambda one: one.pid)])
            what = role(victim, main)
            victim.send_signal(signal_number)
        code, outcome = main.wait(300), "named"
        end = time.monotonic() + 120
        while running_in(home.directory) and time.monotonic() < end:
            time.sleep(0.2)
        last = (home.log.strip().splitlines() or [""])[-1]
        left, held = running_in(home.directory), held_in(home.store)
        silent = code == -signal_number and what == "the run"
        if left or held or "Traceback" in home.log:
            outcome = "losses"
        elif code == 0:
            outcome = "made again" if home.table == table else "false numbers"
            ended += 1
            home = Home(tmp_path / str(ended))
        elif not silent and not last.startswith("error: "):
            outcome = "losses"
        if outcome in ("losses", "false numbers"):
            print(
                f"kill {number}, {signal_number.name} to {what}, exit code {code}, {left}, {held}:", home.log, sep="\n"
            )
        tally(signal_number.name, what, outcome)
    home.to_the_end()
    tally("runs killed, to the end", "table", "made again" if home.table == table else "false numbers")
