"""`parity: authors` in scoring and training, spelled out with the public functions."""

import json
import pickle
import shutil

import numpy as np
import pytest
import torch
from training_calls import score, train
from transformers import AutoConfig, PhiConfig, PhiForCausalLM

import tokenweight.authors_compat as authors
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Training, Weighting
from tokenweight.training import scoring
from tokenweight.training.models import load_model
from tokenweight.training.run import deepspeed_config
from tokenweight.training.sequences import open_scores
from tokenweight.training.trainer import learning_rate_share
from tokenweight.weighting import model_nll, plan_windows, score_windows, weighted_nll
from tokenweight.weighting.weights import token_scores

PLAN = plan_windows(64, 16, 12)


def ids_of(chunk_dir, sequences):
    return torch.from_numpy(np.load(chunk_dir / "tokens.npy")[:sequences].astype(np.int64))


@pytest.fixture
def llama_3_2_dir(base_dir, tmp_path):
    """The base with RoPE of type llama3."""
    folder = tmp_path / "llama-3.2"
    shutil.copytree(base_dir, folder)
    config = AutoConfig.from_pretrained(base_dir)
    config.rope_parameters = {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8,
    }
    config.save_pretrained(folder)
    return folder


@pytest.fixture
def scored(chunk_dir, frozen, inline, tmp_path):
    """Frozen NLL [3, 63] of a scorer under either parity."""

    def run(model_dir, parity, execution=inline, name=None):
        out = tmp_path / f"scores-{name or parity}"
        score(
            model_dir,
            chunk_dir,
            out,
            scorer=frozen,
            sequences=3,
            execution=execution,
            progress=no_progress,
            parity=parity,
        )
        scores = open_scores(out, 3)
        return torch.from_numpy(np.stack([shard[row] for shard, row in scores[:3]]))

    return run


def score_in_place(model, chunk_dir):
    return score_windows(model, ids_of(chunk_dir, 3), PLAN, bos_token_id=1, windows_per_batch=4)


def test_frozen_scorers_keep_their_rope_type_and_the_authors_lose_it(scored, base_dir, llama_3_2_dir, chunk_dir):
    own = score_in_place(load_model(llama_3_2_dir, torch.float32), chunk_dir)
    torch.testing.assert_close(scored(llama_3_2_dir, "paper"), own, rtol=1e-5, atol=1e-5)
    plain = score_in_place(load_model(base_dir, torch.float32, rounding="logits"), chunk_dir)
    theirs = scored(llama_3_2_dir, "authors")
    torch.testing.assert_close(theirs, plain, rtol=1e-5, atol=1e-5)
    assert (theirs - own).abs().max() > 0.1


def test_frozen_scores_of_the_authors_are_those_of_bf16_logits(scored, base_dir, chunk_dir):
    exact = scored(base_dir, "paper")
    torch.testing.assert_close(exact, score_in_place(load_model(base_dir, torch.float32), chunk_dir))
    rounded = scored(base_dir, "authors")
    torch.testing.assert_close(
        rounded, score_in_place(load_model(base_dir, torch.float32, rounding="logits"), chunk_dir)
    )
    error = rounded - exact
    assert 1e-3 < error.square().mean().sqrt() < 0.2
    assert not torch.equal(rounded, rounded.bfloat16().float()), "the cross entropy itself is fp32"


def test_launched_workers_are_told(scored, base_dir, monkeypatch):
    def in_this_process(call, out_dir, execution, progress):
        pickle.loads(pickle.dumps(call))(progress=progress)

    inline = scored(base_dir, "authors", name="inline")
    monkeypatch.setattr(scoring, "launch", in_this_process)
    launched = scored(base_dir, "authors", Execution(device="cpu", launcher="torchrun"), name="launched")
    assert torch.equal(launched, inline)


@pytest.mark.parametrize("kind", ["unfrozen", "frozen"])
def test_first_step_of_the_authors_spelled_out(kind, request, make_request, model_dir, base_dir, chunk_dir, tmp_path):
    """Sparse 0.4: int(0.4 * 63) = 25 tokens, the last among ties, NLLs through bf16, one own column more."""
    scorer, weighting = request.getfixturevalue(kind), Weighting(postprocessing="sparse", kappa=0.4)
    score_dir = None
    if kind == "frozen":
        score_dir = tmp_path / "scores"
        score(
            base_dir,
            chunk_dir,
            score_dir,
            scorer=scorer,
            sequences=4,
            execution=Execution(device="cpu"),
            progress=no_progress,
            parity="authors",
        )
    asked = make_request(steps=1, weighting=weighting, scorer=scorer, score_dir=score_dir, gradient_clip=1e9)
    asked = asked.model_copy(update={"stage": asked.stage.model_copy(update={"parity": "authors"})})
    train(asked, tmp_path / "run", Execution(device="cpu", micro_batch_sequences=2), no_progress)
    step = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())

    model = load_model(model_dir, torch.float32, rounding="nll")
    ids = ids_of(chunk_dir, 4)
    long_nll = model_nll(model, ids)
    if kind == "unfrozen":
        short_nll = score_windows(model, ids, PLAN, bos_token_id=1, windows_per_batch=8)
        short_nll[:, :16] = long_nll[:, :16].detach()
    else:
        scorer_model = load_model(base_dir, torch.float32, rounding="logits")
        short_nll = score_windows(scorer_model, ids, PLAN, bos_token_id=1, windows_per_batch=8)
    scores = token_scores("abs_pmi", long_nll.detach(), short_nll)
    weights = authors.sparse(scores, 0.4, sequence_ids=[0, 1, 2, 3], seed=0)
    assert ((weights > 0).sum(dim=1) == 25).all()
    loss = weighted_nll(long_nll, weights)
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    assert step["weighted_nll"] == pytest.approx(loss.item(), rel=1e-5)
    assert step["nll"] == pytest.approx(long_nll.mean().item(), rel=1e-5)
    assert step["grad_norm"] == pytest.approx(norm.item(), rel=1e-2)  # gradients are rounded before they add up
    assert step["zero_weight_share"] == pytest.approx((63 - 25) / 63)


def test_dropout_is_0_whatever_a_configuration_says(tmp_path, base_dir, chunk_dir):
    """Phi-2 has resid_pdrop 0.1: a model in training mode would score noise."""
    config = PhiConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        resid_pdrop=0.1,
    )
    PhiForCausalLM(config).save_pretrained(tmp_path / "phi")
    for folder in (tmp_path / "phi", base_dir):
        model = load_model(folder, torch.float32).train()
        ids = ids_of(chunk_dir, 2)[:, :16]
        assert torch.equal(model_nll(model, ids), model_nll(model, ids))
        assert not [m for m in model.modules() if isinstance(m, torch.nn.Dropout) and m.p > 0]


def test_one_step_of_the_warm_up_has_rate_0():
    """Of the paper's 240 steps 239 move; the WarmupLR of DeepSpeed 0.16.3 stays at 0 for two and lags one behind."""
    training = Training(steps=240, sequences_per_step=128, learning_rate=2e-5, warmup_steps=20)
    shares = [learning_rate_share(step, training) for step in range(240)]
    assert shares[:3] == [0, 1 / 20, 2 / 20]
    assert shares[19:22] == [19 / 20, 1, 1]
    assert sum(share > 0 for share in shares) == 239


def test_gradients_add_up_in_fp32_and_nothing_is_offloaded():
    training = Training(steps=1, sequences_per_step=8, learning_rate=2e-5, warmup_steps=0)
    config = deepspeed_config(training, Execution(launcher="torchrun", processes=8, deepspeed_stage=3))
    assert config["data_types"]["grad_accum_dtype"] == "fp32"
    assert not [key for key in config["zero_optimization"] if "offload" in key]
    assert "activation_checkpointing" not in config
