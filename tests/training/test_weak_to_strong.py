"""Weak-to-strong (Section 3.1): any frozen scorer of the same vocabulary, with the RoPE that it came with."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from training_calls import score, train

from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Weighting
from tokenweight.training.models import load_model
from tokenweight.weighting import model_nll, plan_windows, score_windows, token_weights, weighted_nll

DENSE = Weighting(postprocessing="dense", lambda_=0.25)
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def score_with(scorer_dir, chunk_dir, out_dir, scorer, **more):
    score(
        scorer_dir,
        chunk_dir,
        out_dir,
        scorer=scorer,
        sequences=12,
        execution=Execution(device="cpu"),
        progress=no_progress,
        **more,
    )
    return out_dir


def test_a_smaller_scorer_scores_and_the_model_trains_with_it(
    make_scorer, make_request, model_dir, chunk_dir, frozen, tmp_path
):
    small = make_scorer(hidden_size=16, intermediate_size=24, num_hidden_layers=1, tie_word_embeddings=False)
    scores = score_with(small, chunk_dir, tmp_path / "scores", frozen, tokenizer_dir=model_dir)
    request = make_request(weighting=DENSE, scorer=frozen, score_dir=scores)
    train(request, tmp_path / "run", Execution(device="cpu"), no_progress)
    first = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])

    ids = torch.from_numpy(np.load(chunk_dir / "tokens.npy")[:4].astype(np.int64))
    plan = plan_windows(64, 16, 12)
    short_nll = score_windows(load_model(small, torch.float32), ids, plan, bos_token_id=1, windows_per_batch=8)
    long_nll = model_nll(load_model(model_dir, torch.float32), ids)
    weights = token_weights(long_nll, short_nll, DENSE, sequence_ids=[0, 1, 2, 3], seed=0)
    assert first["weighted_nll"] == pytest.approx(weighted_nll(long_nll, weights).item(), rel=1e-5)
    assert first["weight_std"] == pytest.approx(weights.std(correction=0).item(), rel=1e-4)


def llama3_inv_freq(dimension):
    """Llama 3.1's rule: long wavelengths divided by the factor, short ones kept, those between interpolated."""
    plain = torch.tensor([500_000.0 ** (-2 * i / dimension) for i in range(dimension // 2)], dtype=torch.float64)
    wavelengths = 2 * math.pi / plain
    smooth = (64 / wavelengths - 1.0) / (4.0 - 1.0)
    between = (1 - smooth) * plain / 8 + smooth * plain
    scaled = torch.where(wavelengths > 64 / 1.0, plain / 8, torch.where(wavelengths < 64 / 4.0, plain, between))
    assert len({*torch.sign(scaled - plain).tolist()}) == 2, "some kept, some changed"
    return scaled.float()


def test_a_llama_3_scorer_keeps_its_rope_type(make_scorer, chunk_dir, frozen, tmp_path):
    sizes = {"hidden_size": 128, "max_position_embeddings": 512}  # 32 frequencies a head
    scorer = make_scorer(**sizes, rope_parameters=LLAMA3_ROPE)
    model = load_model(scorer, torch.float32)
    assert model.config.rope_parameters == LLAMA3_ROPE
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, llama3_inv_freq(64))
    bf16 = load_model(scorer, torch.bfloat16)
    torch.testing.assert_close(bf16.model.rotary_emb.inv_freq, llama3_inv_freq(64))

    plain = make_scorer(**sizes, rope_parameters={"rope_type": "default", "rope_theta": 500_000.0})
    kept, lost = (
        load_file(score_with(folder, chunk_dir, tmp_path / folder.name, frozen) / "shard-00000.safetensors")["nll"]
        for folder in (scorer, plain)
    )
    assert not np.allclose(kept, lost), "the same weights without the type score otherwise"
