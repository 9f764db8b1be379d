"""A run that was cut goes on bit for bit, wherever it was cut."""

import json
import logging
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from training_calls import TIMING_FIELDS, score, train

from tokenweight.errors import StageError, UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Weighting
from tokenweight.training.checkpoints import (
    check_resume,
    conversions,
    delete_broken,
    last_complete,
    mark_complete,
    needs_resharding,
    prepare_resume,
)

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
    (checkpoint,) = tmp_path.glob("cut/**/checkpoint-4")
    optimizer = torch.load(checkpoint / "optimizer.pt", weights_only=True)
    assert len(optimizer["param_groups"]) == 1  # as in checkpoints of before, which have to load
    seen = []
    summary = train(request, tmp_path / "cut", EXECUTION, lambda done, *_: seen.append(done))
    assert summary["resumed_from_step"] == 4
    assert seen == [5, 6, 7]
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


KILLED_WHILE_WRITING = """
import json, os, signal, sys
from pathlib import Path
import torch
from tokenweight.errors import StageError, UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution
from training_calls import TrainRequest
from training_calls import train

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


def test_digits_that_repeat_are_asked_of_torch_for_the_training_alone(make_request, unfrozen, tmp_path):
    seen = []

    def progress(*_):
        seen.append(torch.are_deterministic_algorithms_enabled())

    request = make_request(steps=2, weighting=SPARSE, scorer=unfrozen)
    train(request, tmp_path / "repeats", EXECUTION.model_copy(update={"deterministic": True}), progress)
    train(request, tmp_path / "plain", EXECUTION, progress)
    assert seen == [True, True, False, False]
    assert not torch.are_deterministic_algorithms_enabled()
    assert_same_run(tmp_path / "repeats", tmp_path / "plain")


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
        patch.setattr("tokenweight.training.models.validate_checkpoint", fail)
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
        (folder / "rng_state.pth").write_bytes(b"x")
        mark_complete(folder, EXECUTION)
    assert last_complete(tmp_path) == (tmp_path / "checkpoint-10", [])
    (tmp_path / "checkpoint-10" / "part" / "rank.pt").write_bytes(b"x")
    assert last_complete(tmp_path) == (tmp_path / "checkpoint-4", [tmp_path / "checkpoint-10"])
    delete_broken([tmp_path / "checkpoint-10"])
    assert not (tmp_path / "checkpoint-10").exists()
    shutil.rmtree(tmp_path / "checkpoint-4" / "part")
    (tmp_path / "checkpoint-2" / "complete.json").write_text("{")
    assert last_complete(tmp_path) == (None, [tmp_path / "checkpoint-4", tmp_path / "checkpoint-2"])
    assert last_complete(tmp_path / "nothing") == (None, [])


def test_a_checkpoint_without_every_process_part_is_not_marked(tmp_path):
    two = Execution(launcher="torchrun", processes=2, deepspeed_stage=3)
    checkpoint = tmp_path / "checkpoint-2"
    (checkpoint / "global_step2").mkdir(parents=True)
    for rank in range(2):
        (checkpoint / f"rng_state_{rank}.pth").write_bytes(b"x")
    (checkpoint / "global_step2" / "zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(b"x")
    with pytest.raises(StageError, match=r"1 of 2 processes left .*optim_states.pt here"):
        mark_complete(checkpoint, two)
    assert last_complete(tmp_path) == (None, [checkpoint])


@pytest.mark.parametrize(
    ("changes", "message", "convertible"),
    [
        ({"processes": 4}, "was written with processes 2, this run has processes 4", True),
        ({"micro_batch_sequences": 2}, "micro_batch_sequences 1, this run has micro_batch_sequences 2", True),
        ({"sequence_parallel": 2}, "sequence_parallel 1, this run has sequence_parallel 2", True),
        ({"deepspeed_stage": 2}, "deepspeed_stage 3, this run has deepspeed_stage 2", False),
        ({"deepspeed_stage": 0, "processes": 1}, "processes 2, deepspeed_stage 3, this run has processes 1", False),
    ],
)
def test_another_split_is_refused_in_one_line_or_converted_on_request(tmp_path, changes, message, convertible):
    checkpoint = tmp_path / "checkpoint-20"
    (checkpoint / "global_step20").mkdir(parents=True)
    for rank in range(2):
        (checkpoint / f"rng_state_{rank}.pth").write_bytes(b"x")
        (checkpoint / "global_step20" / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").write_bytes(b"x")
    made = Execution(launcher="torchrun", processes=2, deepspeed_stage=3)
    mark_complete(checkpoint, made)
    check_resume(checkpoint, made.model_copy(update={"save_every_steps": 7, "checkpointing": "full"}))
    present = made.model_copy(update=changes)
    with pytest.raises(UserError, match=message) as refused:
        check_resume(checkpoint, present)
    assert str(checkpoint) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert ("convert_checkpoints" in str(refused.value)) is convertible
    asked = present.model_copy(update={"convert_checkpoints": True})
    if convertible:
        check_resume(checkpoint, asked)
        assert needs_resharding(checkpoint, asked) is ("processes" in changes)
    else:
        with pytest.raises(UserError, match=message):
            check_resume(checkpoint, asked)


def test_parts_are_joined_once_whatever_a_killed_run_left(tmp_path, monkeypatch):
    """DeepSpeed's converter, here one that takes note of what it is given."""
    checkpoint, given = tmp_path / "checkpoint-20", []
    (checkpoint / "global_step20").mkdir(parents=True)
    (checkpoint / "latest").write_text("global_step20\n")
    for rank in range(2):
        (checkpoint / f"rng_state_{rank}.pth").write_bytes(b"x")
        (checkpoint / "global_step20" / f"zero_pp_rank_{rank}_optim_states.pt").write_bytes(b"x")
    mark_complete(checkpoint, Execution(launcher="torchrun", processes=2, deepspeed_stage=3))
    for left in ("global_step20_universal", "latest_universal.partial"):
        (checkpoint / left / "half").mkdir(parents=True)

    def convert(command, *_):
        given.append(command)
        folder = checkpoint / "latest_universal.partial"
        assert not folder.exists()
        assert not (checkpoint / "global_step20_universal").exists()
        if len(given) == 1:
            return 1, ["one", "two", "three", "four"]
        (folder / "zero").mkdir(parents=True)
        return 0, []

    monkeypatch.setattr("tokenweight.training.checkpoints.run_guarded", convert)
    four = Execution(launcher="torchrun", processes=4, deepspeed_stage=3, convert_checkpoints=True)
    with pytest.raises(StageError, match=r"DeepSpeed could not convert it: two \| three \| four$"):
        prepare_resume(checkpoint, four)
    for _ in range(2):
        prepare_resume(checkpoint, four)
    assert len(given) == 2
    assert given[1][1:4] == ["-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    assert given[1][4:] == [
        "--input_folder", str(checkpoint / "global_step20"),
        "--output_folder", str(checkpoint / "latest_universal.partial"),
    ]  # fmt: skip
    assert (checkpoint / "latest_universal").read_text() == "global_step20_universal"
    assert (checkpoint / "global_step20_universal" / "zero").is_dir()
    made = {"step": 20, "processes": 2, "sequence_parallel": 1, "micro_batch_sequences": 1, "deepspeed_stage": 3}
    assert conversions(tmp_path) == [made]
    prepare_resume(checkpoint, four.model_copy(update={"processes": 2}))
    assert len(given) == 2


def test_another_micro_batch_goes_on_up_to_rounding_where_asked(make_request, unfrozen, tmp_path):
    request = make_request(steps=5, weighting=DENSE, scorer=unfrozen, learning_rate=1e-3)
    with pytest.raises(Cut):
        train(request, tmp_path / "cut", EXECUTION, cut_at(4))
    other = EXECUTION.model_copy(update={"micro_batch_sequences": 2})
    with pytest.raises(UserError, match="checkpoint-2: was written with micro_batch_sequences 1"):
        train(request, tmp_path / "cut", other, no_progress)
    asked = other.model_copy(update={"convert_checkpoints": True})
    with pytest.raises(Cut):
        train(request, tmp_path / "cut", asked, cut_at(5))
    summary = train(request, tmp_path / "cut", asked, no_progress)  # from a checkpoint of its own, and it still says so
    assert summary["resumed_from_step"] == 4
    before = {"step": 2, "processes": 1, "sequence_parallel": 1, "micro_batch_sequences": 1, "deepspeed_stage": 0}
    assert summary["converted_from"] == [before]
    assert train(request, tmp_path / "whole", EXECUTION, no_progress)["converted_from"] == []
    for got, expected in zip(losses(tmp_path / "cut"), losses(tmp_path / "whole"), strict=True):
        assert got == pytest.approx(expected, rel=1e-4)
