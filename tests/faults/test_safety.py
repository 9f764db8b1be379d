"""No code of others is run, nothing planted leaks, nothing listens beyond the loopback, and versions are pinned."""

from __future__ import annotations

import ast
import json
import pickle
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import psutil
import pytest
import torch
from faults_laboratory import PLANTED, Laboratory
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tokenweight.assets import smoke_base_dir
from tokenweight.errors import UserError
from tokenweight.evaluation.model_spec import find
from tokenweight.training.models import causal_lm

sys.path.append(str(Path(__file__).parents[1] / "pipeline"))

from tests_pipeline import command, environment, small_settings

Tally = Callable[[str, str, str], None]
ROOT = Path(__file__).parents[2]
# What runs code that is given as data, and where we do that: a call and an error, from our own process to its ranks.
RUNS_CODE = {
    "pickle.load",
    "pickle.loads",
    "torch.load",
    "eval",
    "exec",
    "os.system",
    "yaml.load",
    "yaml.unsafe_load",
    "marshal.loads",
}
OURS = {("tokenweight/training/launch.py", "pickle.loads")}


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    for room in ("flows", "tasks", "tokenweight", "reports"):
        for file in sorted((ROOT / room).rglob("*.py")):
            if not any(part in ("flows", "tasks", "reports") for part in file.relative_to(ROOT).parts[1:-1]):
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.Call):
                        yield file.relative_to(ROOT).as_posix(), ast.unparse(node.func), node


def test_data_are_never_code(tally: Tally) -> None:
    found = set()
    for file, name, node in calls():
        if name in RUNS_CODE:
            found.add((file, name))
        for option in node.keywords:
            assert not (option.arg in ("shell", "trust_remote_code") and ast.unparse(option.value) != "False"), file
    assert found == OURS
    tally("code in data", "the product's calls", "refused")


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.marker,)


def test_a_pickle_and_a_model_s_own_code_are_not_run(tmp_path: Path, tally: Tally) -> None:
    marker = tmp_path / "ran"
    shutil.copytree(smoke_base_dir(), checkpoint := tmp_path / "pickled")
    (checkpoint / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Payload(marker)}, checkpoint / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded") as raised:
        causal_lm(checkpoint, torch.float32)
    assert "\n" not in str(raised.value)
    (checkpoint / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(marker)))
    with pytest.raises(UserError, match="cannot be loaded"):
        causal_lm(checkpoint, torch.float32)
    shutil.copytree(smoke_base_dir(), checkpoint := tmp_path / "own")
    config = json.loads((checkpoint / "config.json").read_text())
    auto = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    (checkpoint / "config.json").write_text(json.dumps({**config, "model_type": "own", "auto_map": auto}))
    (checkpoint / "own.py").write_text(f"open({str(marker)!r}, 'w')\n")
    with pytest.raises(UserError, match="without code of the model's own"):
        find(str(checkpoint))
    assert not marker.exists()
    tally("code in data", "checkpoints", "refused")


def holds(folder: Path) -> list[str]:
    planted = [value.encode() for value in PLANTED.values()]
    files = (file for file in folder.rglob("*") if file.is_file())
    return [str(file) for file in files if any(value in file.read_bytes() for value in planted)]


def test_no_planted_token_is_in_a_store_or_a_table(laboratory: Laboratory, tmp_path: Path, tally: Tally) -> None:
    laboratory.table(tmp_path)
    assert holds(laboratory.store.root) == holds(tmp_path) == []
    tally("planted tokens", "store and tables", "refused")


@pytest.mark.slow
def test_a_run_listens_on_the_loopback_alone_and_leaves_no_token(tmp_path: Path, tally: Tally) -> None:
    """With Prefect's temporary server, whose database and logs lie below the run's temporary directory."""
    (tmp_path / "tmp").mkdir()
    settings = {**environment(tmp_path), **PLANTED, "TMPDIR": str(tmp_path / "tmp")}
    arguments = command(
        "reproduce", "table-3/frozen-sparse@perplexity", *small_settings(), "--launcher", "torchrun", "--processes", "1"
    )
    with (tmp_path / "log").open("w") as log:
        run = psutil.Popen(arguments, cwd=tmp_path, env=settings, stdout=log, stderr=log)
    listened, leaks = set(), set()
    while run.poll() is None:
        for process in [run, *run.children(recursive=True)]:
            try:
                listened |= {c.laddr.ip for c in process.net_connections() if c.status == psutil.CONN_LISTEN}
                leaks |= {value for value in PLANTED.values() if value in " ".join(process.cmdline())}
            except psutil.Error:
                continue
        leaks |= {file for file in holds(tmp_path / "tmp") if Path(file).exists()}
        time.sleep(0.5)
    assert run.returncode == 0, (tmp_path / "log").read_text()[-3000:]
    assert listened
    assert listened <= {"127.0.0.1", "::1"}
    assert leaks == set()
    assert holds(tmp_path) == []
    tally("planted tokens", "a run's database, log, titles", "refused")
    tally("sockets", "a run", "refused")


def test_every_dependency_is_pinned_and_as_required(tally: Tally) -> None:
    """What a new environment gets is what was tested: each package that ours need, at whatever remove."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonicalize_name(Requirement(line.split("#")[0]).name) for line in lines if re.match(r"\w", line)}
    waiting, seen = ["tokenweight[flows,data]"], set()
    while waiting:
        wanted = Requirement(waiting.pop())
        name = canonicalize_name(wanted.name)
        if name in seen and not wanted.extras:
            continue
        seen.add(name)
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if any(
                needed.marker is None or needed.marker.evaluate({"extra": extra}) for extra in (wanted.extras or {""})
            ):
                assert metadata.version(needed.name) in needed.specifier, text
                waiting.append(f"{needed.name}[{','.join(needed.extras)}]" if needed.extras else needed.name)
    of_the_machine = ("tokenweight", "nvidia-", "triton", "cuda-", "setuptools")
    free = {name for name in seen - pinned if not name.startswith(of_the_machine)}
    assert free == set(), "not in constraints.txt"
    tally("dependencies", "constraints.txt", "accepted")
