"""Sequences shared by processes: every number is that of one process with the whole sequence."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_calls import score, train
from transformers import AutoModelForCausalLM

from tokenweight.context.extend import extend
from tokenweight.errors import UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Extension, Training, Weighting
from tokenweight.training.models import load_model
from tokenweight.training.run import deepspeed_config
from tokenweight.training.sequence_parallel import (
    check_sequence_parallel,
    install_attention,
    share_sequences,
    shared_rows,
)
from tokenweight.weighting.head import model_nll
from tokenweight.weighting.shards import SequenceShard

sys.path.insert(0, str(Path(__file__).parent))
from sharded_steps import steps

DENSE = Weighting(postprocessing="dense", lambda_=0.5)
SPARSE = Weighting(postprocessing="sparse", kappa=0.2)
SHARED = Execution(device="cpu", launcher="torchrun", processes=2, sequence_parallel=2)
CASES = {
    "uniform": (Weighting(), "none"),
    "unfrozen dense": (DENSE, "unfrozen"),
    "unfrozen sparse": (SPARSE, "unfrozen"),
    "frozen dense": (DENSE, "frozen"),
    "frozen sparse": (SPARSE, "frozen"),
    "mile": (Weighting(score="mile", postprocessing="raw"), "none"),
}


@pytest.fixture(scope="module")
def grouped_dir(make_scorer, tmp_path_factory):
    """Four heads in two groups, untied, extended to 64 tokens."""
    base = make_scorer(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)
    out = tmp_path_factory.mktemp("grouped")
    extend(base, Extension(long_tokens=64, rope_theta=300_000.0), out)
    return out / "model"


@pytest.fixture(scope="module")
def whole_and_shared(grouped_dir, chunk_dir, tmp_path_factory):
    """The same steps by one process and by two: (results of one, results of each of the two)."""
    ids = torch.from_numpy(np.load(chunk_dir / "tokens.npy")[:3].astype(np.int64))
    short_nll = 5 * torch.rand(3, 63, generator=torch.Generator().manual_seed(0))
    folder = tmp_path_factory.mktemp("steps")
    cases = {name: (weighting.model_dump(by_alias=True), kind) for name, (weighting, kind) in CASES.items()}
    given = {"model_dir": str(grouped_dir), "ids": ids, "short_nll": short_nll, "cases": cases}
    torch.save(given, folder / "given.pt")
    run_two(Path(__file__).with_name("sharded_steps.py"), folder / "given.pt", folder / "out")
    whole = steps(load_model(grouped_dir, torch.float32), ids, short_nll, cases)
    whole["checkpointed"] = whole["uniform"]
    return whole, [torch.load(folder / f"out-{rank}.pt") for rank in range(2)]


def run_two(*command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run([*launcher, *map(str, command)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("case", [*CASES, "checkpointed"])
def test_two_processes_share_a_sequence_and_nothing_changes(whole_and_shared, case):
    whole, shared = whole_and_shared[0][case], [results[case] for results in whole_and_shared[1]]
    assert [result["nll"].shape[1] for result in shared] == [32, 31]
    nll, weights = (torch.cat([result[key] for result in shared], dim=1) for key in ("nll", "weights"))
    torch.testing.assert_close(nll, whole["nll"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weights, whole["weights"], rtol=1e-4, atol=1e-5)
    assert torch.equal(weights == 0, whole["weights"] == 0)  # the same tokens are selected
    mean = (shared[0]["loss"] + shared[1]["loss"]) / 2
    torch.testing.assert_close(mean, whole["loss"], rtol=1e-5, atol=0)
    if whole["short_nll"] is not None:
        assert torch.equal(shared[0]["short_nll"], shared[1]["short_nll"])
        torch.testing.assert_close(shared[0]["short_nll"], whole["short_nll"], rtol=1e-5, atol=1e-5)
    for name, expected in whole["gradients"].items():
        mean = (shared[0]["gradients"][name] + shared[1]["gradients"][name]) / 2
        error = (mean - expected).norm() / expected.norm()
        assert error < 1e-4, (name, error.item())


def test_columns_of_the_shards():
    shards = [SequenceShard(64, rank, 4) for rank in range(4)]
    assert [(s.own_tokens.start, s.own_tokens.stop) for s in shards] == [(0, 16), (16, 32), (32, 48), (48, 64)]
    assert [(s.own_predictions.start, s.own_predictions.stop) for s in shards] == [
        (0, 16),
        (16, 32),
        (32, 48),
        (48, 63),
    ]
    assert sum(s.loss_scale for s in shards) == pytest.approx(4)


def test_neighbouring_ranks_read_the_same_rows():
    assert shared_rows(4, 2, 1) == [0, 1, 2, 3]
    assert shared_rows(4, 2, 2) == [0, 1, 0, 1, 2, 3, 2, 3]


def test_attention_that_ignores_shards_is_noticed(model_dir, chunk_dir):
    ids = torch.from_numpy(np.load(chunk_dir / "tokens.npy")[:1].astype(np.int64))
    with pytest.raises(ValueError, match="would not see each other"):
        model_nll(load_model(model_dir, torch.float32), ids, shard=SequenceShard(64, 0, 2))


def test_calls_without_a_shard_are_as_ever(model_dir, chunk_dir):
    ids = torch.from_numpy(np.load(chunk_dir / "tokens.npy")[:2].astype(np.int64))
    model = load_model(model_dir, torch.float32)
    before = model_nll(model, ids)
    install_attention(model)
    assert torch.equal(model_nll(model, ids), before)


@pytest.mark.parametrize(
    ("changed", "tokens", "message"),
    [
        ({"heads": 7}, 64, r"2 does not divide the model's attention heads \(7\)"),
        ({"kv_heads": 1}, 64, r"2 does not divide the model's key-value heads \(1\)"),
        ({}, 63, r"2 does not divide chunking.long_tokens \(63\)"),
        ({"window": 8}, 64, "sliding window"),
    ],
)
def test_what_does_not_divide_is_said_in_one_line(changed, tokens, message):
    execution = SHARED.model_copy(update={"processes": changed.get("processes", 2)})
    config = SimpleNamespace(
        num_attention_heads=changed.get("heads", 8),
        num_key_value_heads=changed.get("kv_heads", 4),
        sliding_window=changed.get("window"),
    )
    with pytest.raises(UserError, match=message) as error:
        check_sequence_parallel(execution, config, tokens)
    assert "\n" not in str(error.value)
    check_sequence_parallel(execution.model_copy(update={"sequence_parallel": 1}), config, tokens)


def test_attention_that_is_none_of_torchs_is_refused():
    execution = Execution(launcher="torchrun", processes=2, sequence_parallel=2)
    with pytest.raises(UserError, match="no form by torch's sdpa"):
        share_sequences(SimpleNamespace(_supports_sdpa=False), execution, 64)


def test_accumulation_counts_groups_not_processes(make_request, tmp_path):
    training = Training(steps=1, sequences_per_step=8, learning_rate=1e-3, warmup_steps=1)
    execution = SHARED.model_copy(update={"processes": 8, "deepspeed_stage": 3})
    config = deepspeed_config(training, execution)
    assert config["gradient_accumulation_steps"] == 2
    assert config["train_batch_size"] == 16 == 8 * config["gradient_accumulation_steps"]  # by DeepSpeed's own rule
    with pytest.raises(UserError, match=r"over sequence_parallel \(4\)"):
        train(
            make_request(sequences_per_step=6),
            tmp_path,
            execution.model_copy(update={"deepspeed_stage": 0}),
            no_progress,
        )


def metrics(out_dir):
    return [json.loads(line) for line in (out_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("unfrozen", {}),
        ("frozen", {}),
        ("unfrozen", {"processes": 4}),
        ("unfrozen", {"deepspeed_stage": 3, "checkpointing": "full"}),
    ],
    ids=["unfrozen", "frozen", "two groups", "zero-3"],
)
def test_training_is_the_same(
    make_request, grouped_dir, base_dir, chunk_dir, unfrozen, frozen, inline, tmp_path, kind, changes
):
    if "deepspeed_stage" in changes:
        pytest.importorskip("deepspeed")
    scorer, score_dir = unfrozen, None
    if kind == "frozen":
        scorer, score_dir = frozen, tmp_path / "scores"
        score(
            base_dir, chunk_dir, score_dir, scorer=frozen, sequences=12, execution=inline,
            progress=no_progress,
        )  # fmt: skip
    request = make_request(weighting=SPARSE, scorer=scorer, score_dir=score_dir, learning_rate=1e-3, gradient_clip=1e9)
    request = request.model_copy(update={"model_dir": grouped_dir})
    train(request, tmp_path / "one", inline, no_progress)
    train(request, tmp_path / "shared", SHARED.model_copy(update=changes), no_progress)
    one, shared = metrics(tmp_path / "one"), metrics(tmp_path / "shared")
    assert len(shared) == 3
    for expected, got in zip(one, shared, strict=True):
        for key in ("nll", "weighted_nll", "weight_std", "zero_weight_share", "predictions", "grad_norm"):
            assert got[key] == pytest.approx(expected[key], rel=1e-4), key
    models = [tmp_path / name / "model" for name in ("one", "shared")]
    expected, got = (load_file(model / "model.safetensors") for model in models)
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=2e-4)
    assert "sdpa_over_shards" not in (models[1] / "config.json").read_text()
    AutoModelForCausalLM.from_pretrained(models[1])
