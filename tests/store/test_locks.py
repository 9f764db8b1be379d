"""Runs share a store, a clean-up has it alone; what a killed run held is free at once."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from tokenweight.errors import UserError
from tokenweight.pipeline.locks import LEASE_SECONDS, LEASES, exclusive_lock, held_in, is_held, lease, shared_lock
from tokenweight.pipeline.store import Note


def test_a_killed_run_frees_the_store_for_a_clean_up(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from tokenweight.pipeline.locks import shared_lock\n"
        "with shared_lock(Path(sys.argv[1])): print('in', flush=True); time.sleep(600)"
    )
    victim = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    victim.stdout.readline()
    with pytest.raises(UserError, match="a run is using it"), exclusive_lock(tmp_path):
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
        assert told.wait(120)
        assert not inside.is_set()
    thread.join(120)
    assert inside.is_set()


def test_who_waits_for_an_artifact_says_so_and_gets_it(tmp_path: Path) -> None:
    held, said = threading.Event(), threading.Event()

    def hold() -> None:
        with lease(tmp_path, "train", "0" * 64):
            held.set()
            said.wait(120)

    threading.Thread(target=hold).start()
    assert held.wait(120)
    with lease(tmp_path, "train", "0" * 64, said.set) as second:
        assert said.is_set()
        assert second is not None
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match=r"store .*file: cannot be written"),
        lease(tmp_path / "file", "train", "0" * 64),
    ):
        pass


def test_a_holder_that_is_dead_but_not_reaped_or_left_no_record_is_none(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from tokenweight.pipeline.locks import lease\n"
        "with lease(Path(sys.argv[1]), 'train', '0' * 64): os._exit(9)"
    )
    zombie = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # dead, and nobody has asked how it ended
    (file,) = (tmp_path / LEASES).glob("*.lock")
    assert held_in(tmp_path) == set()
    with lease(tmp_path, "train", "0" * 64) as ours:
        assert ours is not None
    zombie.wait()
    file.touch()
    with lease(tmp_path, "train", "0" * 64) as ours:
        assert ours is None, "it may be writing its record just now"
    assert held_in(tmp_path) == {("train", "00000000")}
    os.utime(file, (time.time() - 2 * LEASE_SECONDS,) * 2)
    assert held_in(tmp_path) == set()
    with lease(tmp_path, "train", "0" * 64) as ours:
        assert ours is not None


def test_a_holder_elsewhere_counts_as_alive_until_it_was_silent_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenweight.pipeline.locks.HEARTBEAT_SECONDS", LEASE_SECONDS - 1)  # none meanwhile
    with lease(tmp_path, "train", "0" * 64):
        file = tmp_path / LEASES / "train-00000000.lock"
        assert held_in(tmp_path) == {("train", "00000000")}
        monkeypatch.setattr("psutil.Process", Mock(side_effect=psutil.NoSuchProcess(1)))
        assert not is_held(tmp_path, "train", "0" * 64), "of this machine, and gone"
        monkeypatch.setattr(socket, "gethostname", lambda: "another")
        for seconds, held in ((0, True), (590, True), (610, False)):
            os.utime(file, (time.time() - seconds,) * 2)
            assert is_held(tmp_path, "train", "0" * 64) == held
    assert not is_held(tmp_path, "train", "0" * 64)


def test_a_lease_may_end_in_another_thread_than_it_began(tmp_path: Path) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(1) as other:
        other.submit(stack.enter_context, lease(tmp_path, "train", "0" * 64)).result()
        assert is_held(tmp_path, "train", "0" * 64)
    assert not is_held(tmp_path, "train", "0" * 64)


def test_where_there_are_no_locks_leases_alone_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    store, notes = tmp_path / "no" / "store", list[str]()
    for _ in range(2):
        with shared_lock(store, notes.append), exclusive_lock(store):
            pass
    assert notes == []
    with lease(store, "train", "0" * 64), pytest.raises(UserError, match="a run is using it"), exclusive_lock(store):
        pass
