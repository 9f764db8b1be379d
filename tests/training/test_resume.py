"""A run that was cut goes on bit for bit, wherever it was cut."""

import json
import logging
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Weighting
from tokenweight.training.checkpoints import last_whole, mark_whole
from tokenweight.training.metrics import TIMING_FIELDS
from tokenweight.training.run import train
from tokenweight.training.scoring import score

EXECUTION = Execution(device="cpu", save_every_steps=2)
SPARSE = Weighting(postprocessing="sparse", kappa=0.3)
DENSE = Weighting(postprocessing="dense", lambda_=0.5)


class Cut(BaseException):
    """Ends a run as Ctrl-C does."""


def cut_at(step):
    def progress(done, total, what):
        if done == step:
            raise Cut

    return progress


def losses(out_dir):
    rows = [json.loads(line) for line in (out_dir / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMING_FIELDS} for row in rows]


def assert_same_run(out_dir, expected_dir):
    assert losses(out_dir) == losses(expected_dir)
    expected = load_file(expected_dir / "model" / "model.safetensors")
    got = load_file(out_dir / "model" / "model.safetensors")
    assert expected.keys() == got.keys()
    for name, tensor in expected.items():
        assert torch.equal(got[name], tensor), name
    assert sorted(p.name for p in out_dir.iterdir()) == ["metrics.jsonl", "model", "tensorboard"]


@pytest.mark.parametrize("kind", ["unfrozen", "frozen"])
def test_a_cut_run_goes_on_bit_for_bit(make_request, unfrozen, frozen, base_dir, chunk_dir, inline, tmp_path, kind):
    if kind == "frozen":
        scores = tmp_path / "scores"
        score(
            base_dir,
            chunk_dir,
            scores,
            scorer=frozen,
            sequences=28,
            scorer_fingerprint="f",
            execution=inline,
            progress=no_progress,
        )
        request = make_request(steps=7, weighting=DENSE, scorer=frozen, score_dir=scores)
    else:
        request = make_request(steps=7, weighting=SPARSE, scorer=unfrozen)
    train(request, tmp_path / "whole", EXECUTION, no_progress)
    for step in (1, 5, 6):
        with pytest.raises(Cut):
            train(request, tmp_path / "cut", EXECUTION, cut_at(step))
    seen = []
    summary = train(request, tmp_path / "cut", EXECUTION, lambda done, *_: seen.append(done))
    assert summary["resumed_from_step"] == 4
    assert seen == [5, 6, 7]
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


KILLED_WHILE_WRITING = """
import json, os, signal, sys
from pathlib import Path
import torch
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.request import TrainRequest
from tokenweight.training.run import train

torch.set_num_threads(1)
whole_save = torch.save

def save(value, path, *args, **kwargs):
    whole_save(value, path, *args, **kwargs)
    if "checkpoint-6" in str(path) and str(path).endswith("optimizer.pt"):
        os.truncate(path, os.path.getsize(path) // 2)
        os.kill(os.getpid(), signal.SIGKILL)

torch.save = save
request, out_dir = TrainRequest.model_validate_json(sys.argv[1]), Path(sys.argv[2])
train(request, out_dir, Execution(device="cpu", save_every_steps=2), no_progress)
"""


def test_sigkill_in_the_middle_of_a_checkpoint_falls_back_to_the_last_whole_one(
    make_request, unfrozen, tmp_path, caplog
):
    request = make_request(steps=7, weighting=SPARSE, scorer=unfrozen)
    arguments = [request.model_dump_json(by_alias=True), str(tmp_path / "killed")]
    child = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, *arguments], check=False)
    assert child.returncode == -9
    assert sorted(p.name for p in (tmp_path / "killed" / "checkpoints").iterdir()) == [
        "checkpoint-2",
        "checkpoint-4",
        "checkpoint-6",
    ]
    with caplog.at_level(logging.WARNING):
        summary = train(request, tmp_path / "killed", EXECUTION, no_progress)
    assert "checkpoint-6 is incomplete" in caplog.text
    assert summary["resumed_from_step"] == 4
    assert summary["skipped_checkpoints"] == ["checkpoint-6"]
    train(request, tmp_path / "whole", EXECUTION, no_progress)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_a_run_cut_after_its_last_step_only_saves(make_request, tmp_path, monkeypatch):
    def fail(*_):
        raise Cut

    request = make_request(steps=4)
    with monkeypatch.context() as patch:
        patch.setattr("tokenweight.training.saving.validate_checkpoint", fail)
        with pytest.raises(Cut):
            train(request, tmp_path / "cut", EXECUTION, no_progress)
    assert (tmp_path / "cut" / "model.partial").is_dir()
    steps = []
    train(request, tmp_path / "cut", EXECUTION, lambda *args: steps.append(args))
    assert steps == []
    train(request, tmp_path / "whole", EXECUTION, no_progress)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_a_finished_run_is_not_repeated(make_request, tmp_path, monkeypatch):
    first = train(make_request(), tmp_path, EXECUTION, no_progress)
    monkeypatch.setattr("tokenweight.training.run.fit", None)
    assert train(make_request(), tmp_path, EXECUTION, no_progress) == first


def test_only_a_checkpoint_with_all_its_files_counts(tmp_path):
    for step in (2, 10, 4):
        folder = tmp_path / f"checkpoint-{step}"
        (folder / "part").mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"x" * 10)
        (folder / "part" / "rank.pt").write_bytes(b"x" * 10)
        mark_whole(folder)
    assert last_whole(tmp_path) == (tmp_path / "checkpoint-10", [])
    (tmp_path / "checkpoint-10" / "part" / "rank.pt").write_bytes(b"x")
    assert last_whole(tmp_path) == (tmp_path / "checkpoint-4", ["checkpoint-10"])
    assert not (tmp_path / "checkpoint-10").exists()
    shutil.rmtree(tmp_path / "checkpoint-4" / "part")
    (tmp_path / "checkpoint-2" / "whole.json").write_text("{")
    assert last_whole(tmp_path) == (None, ["checkpoint-4", "checkpoint-2"])
    assert last_whole(tmp_path / "nothing") == (None, [])
