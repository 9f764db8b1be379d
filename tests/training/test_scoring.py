"""Frozen scores: what is in the shards, resuming, and shards that are damaged."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
import training_calls
from safetensors.numpy import load_file
from training_calls import train

from tokenweight.errors import StageError, UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Weighting
from tokenweight.training import scoring
from tokenweight.training.launch import VARIABLE, Stopped
from tokenweight.training.models import load_model
from tokenweight.training.sequences import open_scores, shard_path, write_shard
from tokenweight.weighting import plan_windows, score_windows

PLAN = plan_windows(64, 16, 12)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(scoring, "SHARD_SEQUENCES", 4)


@pytest.fixture
def score(base_dir, chunk_dir, frozen, inline, tmp_path):
    def run(sequences=10, progress=no_progress, **more):
        return training_calls.score(
            more.pop("model_dir", base_dir),
            more.pop("chunk_dir", chunk_dir),
            tmp_path / "scores",
            scorer=more.pop("scorer", frozen),
            sequences=sequences,
            execution=more.pop("execution", inline),
            progress=progress,
            **more,
        )

    return run


@pytest.fixture
def load(tmp_path):
    def rows(sequences=10):
        return [shard[row] for shard, row in open_scores(tmp_path / "scores", sequences)]

    return rows


def test_shards_hold_the_scorer_s_short_nll(score, load, base_dir, chunk_dir, tmp_path):
    summary = score()
    assert summary["shards"] == 3
    assert summary["windows"] == 5
    assert summary["scored_tokens"] == 10 * 63
    names = [f"shard-{i:05d}.safetensors" for i in range(3)]
    assert sorted(p.name for p in (tmp_path / "scores").iterdir()) == names
    ids = torch.from_numpy(np.load(chunk_dir / "tokens.npy")[:10].astype(np.int64))
    model = load_model(base_dir, torch.float32)
    expected = score_windows(model, ids, PLAN, bos_token_id=1, windows_per_batch=99)
    scores = load()
    for row in range(10):
        assert scores[row].dtype == np.float32
        torch.testing.assert_close(torch.from_numpy(np.array(scores[row])), expected[row], rtol=1e-5, atol=1e-5)


def test_the_scorer_runs_with_its_own_rope(score, load, model_dir, tmp_path):
    score()
    own = np.array(load()[0])
    for file in (tmp_path / "scores").iterdir():
        file.unlink()
    score(model_dir=model_dir)
    assert not np.allclose(own, load()[0])


def test_scoring_goes_on_after_the_last_whole_shard(score, load, tmp_path, monkeypatch):
    score()
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "scores").glob("*.safetensors")}
    values = np.array(load()[9])
    (tmp_path / "scores/shard-00001.safetensors").unlink()
    os.truncate(tmp_path / "scores/shard-00002.safetensors", 1500)
    seen = []
    score(progress=lambda *args: seen.append(args))
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "scores").glob("*.safetensors")}
    assert before["shard-00000.safetensors"] == after["shard-00000.safetensors"]
    assert before["shard-00001.safetensors"] < after["shard-00001.safetensors"]
    assert seen == [(done, 10, "sequences") for done in range(5, 11)]
    assert np.array_equal(load()[9], values)
    monkeypatch.setattr(scoring.models, "load_model", None)
    score()  # all there: no model is loaded


KILLED_WHILE_SCORING = """
import os, signal, sys
from pathlib import Path
import torch
from tokenweight.recipes.schema import Execution, Scorer
from tokenweight.training import scoring
from training_calls import score

torch.set_num_threads(1)
scoring.SHARD_SEQUENCES = 4

def kill_in_the_third_shard(done, total, what):
    if done == 10:
        os.kill(os.getpid(), signal.SIGKILL)

model, chunks, out, scorer = sys.argv[1:]
score(
    Path(model), Path(chunks), Path(out), scorer=Scorer.model_validate_json(scorer), sequences=18,
    execution=Execution(device="cpu"), progress=kill_in_the_third_shard,
)
"""


def test_killed_scoring_goes_on_with_the_shards_that_are_missing(score, load, base_dir, chunk_dir, frozen, tmp_path):
    out = tmp_path / "scores"
    arguments = [str(base_dir), str(chunk_dir), str(out), frozen.model_dump_json()]
    child = subprocess.run([sys.executable, "-c", KILLED_WHILE_SCORING, *arguments], check=False)
    assert child.returncode == -signal.SIGKILL
    assert sorted(p.name for p in out.glob("*.safetensors")) == ["shard-00000.safetensors", "shard-00001.safetensors"]
    before = {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in out.iterdir()}
    seen = []
    score(sequences=18, progress=lambda *args: seen.append(args))
    assert seen == [(done, 18, "sequences") for done in range(9, 19)]
    after = {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in out.iterdir()}
    assert {name: after[name] for name in before} == before
    resumed = np.stack([load(sequences=18)[i] for i in range(18)])
    for file in out.iterdir():
        file.unlink()
    score(sequences=18)
    assert np.array_equal(resumed, np.stack([load(sequences=18)[i] for i in range(18)]))


def test_only_the_sequences_that_training_reads_are_scored(score, load, frozen, make_request, tmp_path):
    """40 sequences lie there; 3 steps of 4 read 12."""
    request = make_request(
        weighting=Weighting(postprocessing="dense", lambda_=0.5), scorer=frozen, score_dir=tmp_path / "scores"
    )
    seen = []
    summary = score(sequences=request.stage.sequences, progress=lambda done, *_: seen.append(done))
    assert (request.stage.sequences, max(seen), summary["scored_tokens"]) == (12, 12, 12 * 63)
    assert sum(len(load_file(p)["nll"]) for p in (tmp_path / "scores").glob("*.safetensors")) == 12
    train(request, tmp_path / "run", Execution(device="cpu"), no_progress)


def test_scoring_that_is_asked_to_stop_keeps_its_shards(score, load, tmp_path, monkeypatch):
    stop_file = tmp_path / "stop"
    monkeypatch.setenv(VARIABLE, str(stop_file))
    stop_file.touch()
    with pytest.raises(Stopped, match="scoring stopped on request; run again to resume"):
        score()
    assert [file.name for file in (tmp_path / "scores").iterdir()] == ["shard-00000.safetensors"]
    stop_file.unlink()
    score()
    assert len(load()) >= 10


def test_a_large_store_is_mapped_and_not_loaded(tmp_path):
    """256 MB of scores; opening them and reading some rows allocates less than one shard."""
    for index in range(16):
        write_shard(shard_path(tmp_path, index), nll=np.zeros((128, 32767), np.float32))
    assert sum(p.stat().st_size for p in tmp_path.glob("*.safetensors")) > 250 * 2**20
    tracemalloc.start()
    scores = open_scores(tmp_path, 2048)
    for sequence in (0, 1000, 2047):
        shard, row = scores[sequence]
        assert not shard[row].any()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2 * 2**20


def test_fewer_scores_than_are_read_are_named(score, load, tmp_path):
    score()
    with pytest.raises(StageError, match="has scores of 10 sequences, 11 are read; score them again"):
        load(sequences=11)
    (tmp_path / "scores/shard-00000.safetensors").unlink()  # the others' would be taken for its sequences'
    with pytest.raises(StageError, match="has scores of 0 sequences, 4 are read; score them again"):
        load(sequences=4)


@pytest.mark.parametrize("left", [b"", b"\x00\x00\x00"])
def test_what_is_no_shard_is_scored_again(left, score, load, tmp_path):
    score()
    values = np.array(load()[0])
    (tmp_path / "scores/shard-00000.safetensors").write_bytes(left)
    score()
    assert np.array_equal(load()[0], values)


def test_a_frozen_scorer_computes_in_the_precision_of_training(score, load, base_dir, chunk_dir):
    score(precision="bf16")
    ids = torch.from_numpy(np.load(chunk_dir / "tokens.npy")[:10].astype(np.int64))
    rounded, exact = (
        score_windows(load_model(base_dir, dtype), ids, PLAN, bos_token_id=1).numpy()
        for dtype in (torch.bfloat16, torch.float32)
    )
    found = np.stack([load()[i] for i in range(10)])
    assert np.abs(found - rounded).max() < np.abs(found - exact).max() / 4


def test_the_same_words_with_other_ids_are_another_vocabulary(score, base_dir, tmp_path):
    (other := tmp_path / "other").mkdir()
    for file in base_dir.glob("tokenizer*"):
        (other / file.name).write_text(file.read_text())
    content = json.loads((other / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    words["w3"], words["w4"] = words["w4"], words["w3"]
    (other / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"scorer.model: .* has another vocabulary"):
        score(tokenizer_dir=other)


def test_another_vocabulary_is_refused(score, other_vocabulary_dir):
    with pytest.raises(UserError, match=r"scorer.model: .* has another vocabulary") as caught:
        score(tokenizer_dir=other_vocabulary_dir)
    assert "\n" not in str(caught.value)


def test_too_few_sequences_and_too_long_windows_are_named(score, frozen):
    with pytest.raises(UserError, match="40 sequences, training reads 41"):
        score(sequences=41)
    with pytest.raises(UserError, match=r"scorer.short_tokens: 32 exceeds the scorer's context \(16\)"):
        score(scorer=frozen.model_copy(update={"short_tokens": 32}))


def test_a_scorer_that_sees_less_than_its_windows_is_refused(score, base_dir, tmp_path):
    folder = shutil.copytree(base_dir, tmp_path / "sliding")
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "mistral", "sliding_window": 8}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        UserError, match=r"scorer.short_tokens .*: every layer of sliding sees the last 8 tokens .* fewer than 16"
    ):
        score(model_dir=folder)


def test_micro_batches_change_nothing_but_rounding(score, load, tmp_path):
    score()
    one = np.stack([load()[i] for i in range(10)])
    for file in (tmp_path / "scores").iterdir():
        file.unlink()
    score(execution=Execution(device="cpu", micro_batch_sequences=3))
    np.testing.assert_allclose(np.stack([load()[i] for i in range(10)]), one, rtol=1e-5, atol=1e-5)
