"""For all tests: quiet libraries, a Prefect home of their own, and two processes that share the work.

For authors of tests. `make test` runs two pytest processes (pytest-xdist), one a core; CI has a time limit.

- The tests of one file run in one process, in order, so a fixture of module scope is made once. A fixture of session
  scope is made once a process: where that is dear, name the files that use it in SHARED below; they stay together.
- The other process runs at the same time. Ask the system for free ports, write below tmp_path alone, count your own
  children and not the machine's, and assert no wall times.
- A start of `tokenweight` with torch and Prefect costs seconds. Call tokenweight.cli.main() in the test's process
  unless the process itself (its exit, signals, sockets, what it imports) is what the test is about.
- Smallest recipe that can fail: two steps, one sample, short contexts. A longer test is marked slow only where a
  default test covers the same code, small.
- `pytest FILE` runs in one process, as do the slow tests, which start processes of their own or measure memory.
"""

import atexit
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from operator import attrgetter
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tokenweight.embedded import quiet

# Files that use the fixture `workplace`, a table reproduced from nothing: minutes, and the longest of the suite.
SHARED = ("tests/pipeline/test_reproduce.py", "tests/pipeline/test_planted.py")

quiet()
hypothesis.settings.load_profile("ci")  # the same examples each time, however long one takes
# Two processes must not share one temporary server's database; a worker would inherit the first process's home.
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="tokenweight-tests-")
atexit.register(shutil.rmtree, os.environ["PREFECT_HOME"], ignore_errors=True)
os.environ["PREFECT_PLUGINS_ENABLED"] = "false"  # the project's plugin would find a server that runs here
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the cores are taken by the processes


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that share a dear fixture first: the longest work starts first."""
    items.sort(key=lambda item: not _shared(item.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """The same random numbers whatever ran before in this process."""
    random.seed(0)
    for name, seed in (("numpy", "random.seed"), ("torch", "manual_seed")):
        if name in sys.modules:
            attrgetter(seed)(sys.modules[name])(0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By file, and the files in SHARED together (pytest-xdist 3.8 ignores xdist_group under pytest 9.2: its #1386)."""
    from xdist.scheduler import LoadFileScheduling

    class SharedTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "shared" if _shared(nodeid) else super()._split_scope(nodeid)

    return SharedTogether(config, log)


def _shared(nodeid: str) -> bool:
    return nodeid.partition("::")[0] in SHARED


@pytest.fixture
def run_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `tokenweight` in this process, with a directory to run it in: exit code, stdout, stderr."""
    from tokenweight import embedded
    from tokenweight.cli import main

    def run(directory: Path, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(directory)
        monkeypatch.setattr(embedded, "prepare", lambda: None)  # its settings would stay for the next tests
        monkeypatch.setattr(embedded, "ended_together", nullcontext)
        monkeypatch.setattr(sys, "argv", ["tokenweight", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def pieces_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run makes its pieces in this process, one after the other, without Prefect."""
    from tokenweight.commands import reproduce
    from tokenweight.tasks.experiments import write_tables
    from tokenweight.tasks.pieces import run_in_order

    def run(*, wanted: Any, store: Any, execution: Any, options: Any, written: dict[str, Any], **_: Any) -> None:
        for planned in wanted:
            run_in_order(planned.graph, store, execution)
            written[planned.name] = write_tables(planned, store, options.out.resolve())

    monkeypatch.setattr(reproduce, "run_flow", run)
