import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokenweight.errors import StageError, UserError
from tokenweight.files import check_writable
from tokenweight.pipeline import store as store_module
from tokenweight.pipeline.stage import Artifact, HubModel, Identity
from tokenweight.pipeline.store import SMALL_FILES, Build, Store, locate, open_store, read_record

IDENTITY = Identity("chunk", 1, "novel", {"seed": 1})


def write(text: str):  # type: ignore[no-untyped-def]
    def build(work: Build) -> None:
        (work.directory / "data.txt").write_text(text)
        work.facts["length"] = len(text)

    return build


def get_or_build(store: Store, identity: Identity, build, **given) -> tuple[Path, bool]:  # type: ignore[no-untyped-def]
    """The artifact's directory, and whether it was there."""
    with store.building(identity, **given) as work:
        if work is not None:
            build(work)
    return store.path(identity), work is None


def refuse(work: Build) -> None:
    raise AssertionError("must not be built again")


def test_an_artifact_is_made_once_and_then_reused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path, reused = get_or_build(store, IDENTITY, write("hello"))
    assert not reused
    assert (path / "data.txt").read_text() == "hello"
    assert get_or_build(store, IDENTITY, refuse) == (path, True)


def test_the_record_says_what_made_the_artifact(tmp_path: Path) -> None:
    store = Store(tmp_path)
    get_or_build(store, IDENTITY, write("hello"))
    record = read_record(store.path(IDENTITY))
    assert record["fingerprint"] == IDENTITY.fingerprint
    assert record["outputs"]["data.txt"]["bytes"] == 5
    assert record["facts"] == {"length": 5}
    assert record["versions"]["python"].startswith("3.")
    assert record["devices"] == [store_module._processor()]
    assert store_module._processor() in Path("/proc/cpuinfo").read_text()
    source = Path(__file__).parents[2]
    if (source / ".git").exists() and shutil.which("git"):
        head = subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        assert record["git"]["commit"] == (head.stdout.strip() or None)  # git refuses a checkout of somebody else's
    identity_part = json.dumps([record["config"], record["inputs"], record["fingerprint"]])
    assert str(tmp_path) not in identity_part


@pytest.mark.parametrize(("version", "by"), [(1, "tokenweight 0.1"), (3, "another version of tokenweight")])
def test_a_store_of_another_version_is_refused_by_name(version: int, by: str, tmp_path: Path) -> None:
    path, _ = get_or_build(Store(tmp_path), IDENTITY, write("hello"))
    assert open_store(tmp_path).root == tmp_path
    record = {**read_record(path), "record_version": version}
    (path / "record.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=rf"was made by {by}; choose another"):
        open_store(tmp_path)


def test_who_lost_the_lease_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "lease", lambda *_: nullcontext(SimpleNamespace(compromise="taken over")))
    with pytest.raises(StageError, match="another run took its lease; run again"):
        get_or_build(Store(tmp_path), IDENTITY, write("hello"))
    assert Store(tmp_path).state(IDENTITY).kind == "missing"


def test_a_fact_that_is_no_number_is_no_record(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        get_or_build(Store(tmp_path), IDENTITY, lambda work: (write("x")(work), work.facts.update(nll=float("nan"))))
    assert Store(tmp_path).state(IDENTITY).kind == "missing"


def test_gpus_are_named_where_torch_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        get_device_name=lambda i: f"GPU {i}",
        max_memory_allocated=lambda i: 10 + i,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert store_module.devices() == ["GPU 0", "GPU 1"]
    assert {**store_module.peak_memory_bytes(), "host": 0} == {"host": 0, "cuda:0": 10, "cuda:1": 11}
    cuda.is_available = lambda: False
    assert store_module.devices() == [store_module._processor()]
    monkeypatch.delitem(sys.modules, "torch")
    assert [*store_module.peak_memory_bytes()] == ["host"]


def test_of_a_model_on_the_hub_all_or_the_small_files_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **how: asked.append(how) or str(tmp_path))
    model = Artifact(HubModel(repo_id="a/b", revision="0" * 40))
    assert locate(model, Store(tmp_path)) == locate(model, Store(tmp_path), small=True) == tmp_path
    (everything, small) = [(how["allow_patterns"], how["ignore_patterns"]) for how in asked]
    assert (everything[0], small) == (None, (SMALL_FILES, None))
    assert "*.gguf" in everything[1]
    assert model.address.startswith("source/b-")


def test_files_are_as_readable_as_the_record(tmp_path: Path) -> None:
    def build(work: Build) -> None:
        (work.directory / "made").write_text("weights")
        (work.directory / "made").chmod(0o600)  # as safetensors makes them

    path, _ = get_or_build(Store(tmp_path / "store"), IDENTITY, build)
    modes = {name: (path / name).stat().st_mode & 0o777 for name in ("record.json", "made")}
    assert modes["made"] == modes["record.json"] != 0o600


def test_a_failed_build_leaves_no_artifact_and_the_next_goes_on_from_its_files(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def half(work: Build) -> None:
        (work.directory / "part-0").write_text("done")
        (work.directory / ".part-1.4711").write_text("ha")  # as a file is until it is complete
        raise StageError("power cut")

    with pytest.raises(StageError, match="power cut"):
        get_or_build(store, IDENTITY, half)
    assert not store.path(IDENTITY).exists()
    assert "what it saved is used" in store.state(IDENTITY).reason

    def rest(work: Build) -> None:
        assert (work.directory / "part-0").read_text() == "done"
        (work.directory / "part-1").write_text("too")

    said: list[str] = []
    path, _ = get_or_build(store, IDENTITY, rest, note=said.append)
    assert said == [f"{IDENTITY.address}: begun by an earlier run; what it saved is used"]
    assert sorted(read_record(store.path(IDENTITY))["outputs"]) == ["part-0", "part-1"]
    assert path.exists()


def test_bad_input_leaves_nothing_behind(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def build(work: Build) -> None:
        (work.directory / "half").write_text("x")
        raise UserError("corpus: empty")

    with pytest.raises(UserError):
        get_or_build(store, IDENTITY, build)
    assert list((tmp_path / "chunk").iterdir()) == []


def test_a_stage_that_writes_nothing_fails(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="no file"):
        get_or_build(Store(tmp_path), IDENTITY, lambda work: None)


@pytest.mark.parametrize("damage", ["truncate", "delete", "record"])
def test_damage_is_named_set_aside_and_repaired(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    path, _ = get_or_build(store, IDENTITY, write("hello"))
    if damage == "truncate":
        (path / "data.txt").write_text("hell")
    elif damage == "delete":
        (path / "data.txt").unlink()
    else:
        (path / "record.json").write_text("{")
    state = store.state(IDENTITY)
    assert state.kind == "damaged"
    notes: list[str] = []
    path, reused = get_or_build(store, IDENTITY, write("hello"), note=notes.append)
    assert not reused
    assert (path / "data.txt").read_text() == "hello"
    assert "set aside" in notes[0]
    assert len(list((tmp_path / "chunk").glob("*.damaged-*"))) == 1


def test_changed_content_of_equal_size_is_seen_by_digest(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path, _ = get_or_build(store, IDENTITY, write("hello"))
    (path / "data.txt").write_text("jello")
    assert store.state(IDENTITY).kind == "complete"
    assert "other contents" in store.state(IDENTITY, digests=True).reason


def _contend(root: str, log: str) -> None:
    def build(work: Build) -> None:
        with open(log, "a") as stream:
            stream.write("built\n")
        time.sleep(0.5)
        (work.directory / "data.txt").write_text("x")

    get_or_build(Store(Path(root)), IDENTITY, build)


def test_runs_at_once_make_it_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_contend, args=(str(tmp_path / "s"), str(log))) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
        assert process.exitcode == 0
    assert log.read_text() == "built\n"


def test_a_killed_holder_does_not_block_the_next_run(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from tokenweight.pipeline.stage import *; from tokenweight.pipeline.store import *\n"
        "with Store(Path(sys.argv[1])).building(Identity('chunk', 1, 'novel', {'seed': 1})) as work:\n"
        "    (work.directory / 'part-0').write_text('x'); print('building', flush=True); time.sleep(600)\n"
    )
    victim = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    victim.stdout.readline()
    store = Store(tmp_path)
    assert store.state(IDENTITY).kind == "being made"
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    assert store.state(IDENTITY).kind == "missing"

    def rest(work: Build) -> None:
        assert (work.directory / "part-0").exists()

    notes: list[str] = []
    get_or_build(store, IDENTITY, rest, note=notes.append)
    assert notes == [f"{IDENTITY.address}: begun by an earlier run; what it saved is used"], "and it waits for nobody"
    assert store.state(IDENTITY).kind == "complete"


@pytest.mark.parametrize("place", ["/proc/x", "/sys/x", "/dev/null/x", "file", "file/x", "loop"])
def test_a_store_that_cannot_be_made_is_one_line(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UserError, match=f"^--store .*{place}: .*; choose another$"):
        check_writable("--store", open_store(tmp_path / place).root)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]
