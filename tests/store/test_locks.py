"""Runs share a store, a clean-up has it alone; what a killed run held is free at once."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tokenweight.errors import UserError
from tokenweight.pipeline.locks import exclusive_lock, shared_lock
from tokenweight.pipeline.store import Note


def test_a_killed_run_frees_the_store_for_a_clean_up(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from tokenweight.pipeline.locks import shared_lock\n"
        "with shared_lock(Path(sys.argv[1])): print('in', flush=True); time.sleep(60)"
    )
    victim = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    victim.stdout.readline()
    with pytest.raises(UserError, match="a run is at work"), exclusive_lock(tmp_path):
        pass
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    with exclusive_lock(tmp_path):
        pass


def test_a_run_waits_for_a_clean_up_and_says_so(tmp_path: Path) -> None:
    told = threading.Event()
    waits: Note = lambda message: told.set()  # noqa: E731
    inside = threading.Event()

    def work() -> None:
        with shared_lock(tmp_path, waits):
            inside.set()

    with exclusive_lock(tmp_path):
        thread = threading.Thread(target=work)
        thread.start()
        assert told.wait(30)
        assert not inside.is_set()
    thread.join(30)
    assert inside.is_set()
