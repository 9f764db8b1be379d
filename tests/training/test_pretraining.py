"""Pre-training a base of our own through the same trainer."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tokenweight.errors import UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Architecture, Execution, NovelCorpus, PretrainBase, Training
from tokenweight.training.bases import pretrain


@pytest.fixture
def base():
    return PretrainBase(
        architecture=Architecture(hidden_size=32, intermediate_size=64, layers=2, heads=2, kv_heads=1),
        corpus=NovelCorpus(),
        context_tokens=32,
        training=Training(
            steps=60,
            sequences_per_step=8,
            learning_rate=1e-2,
            warmup_steps=2,
            precision="fp32",
            final_learning_rate_share=0.1,
        ),
        seed=3,
    )


def inputs(tokenizer_dir, chunk_dir):
    return {"tokenizer": tokenizer_dir, "chunks": chunk_dir}


@pytest.fixture
def counting_dir(tmp_path):
    """Sequences that count upwards: predictable, once learned."""
    folder = tmp_path / "chunks"
    folder.mkdir()
    starts = np.random.default_rng(0).integers(0, 60, (64, 1))
    tokens = (3 + (starts + np.arange(32)) % 60).astype(np.uint32)
    np.save(folder / "tokens.npy", tokens)
    return folder


def test_a_base_learns_and_is_saved_with_its_tokenizer(base, base_dir, counting_dir, tmp_path):
    out = tmp_path / "out"
    summary = pretrain(
        base, inputs(base_dir, counting_dir), out, Execution(device="cpu", micro_batch_sequences=8), no_progress
    )
    assert summary["first_nll"] > 4
    assert summary["last_nll"] < 0.5
    assert summary["passes"] == pytest.approx(60 * 8 / 64)
    assert sorted(p.name for p in out.iterdir()) == ["metrics.jsonl", "model", "tensorboard"]
    model = AutoModelForCausalLM.from_pretrained(out / "model")
    assert summary["parameters"] == model.num_parameters()
    assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(out / "model")) == 64
    assert (model.config.max_position_embeddings, model.config.num_key_value_heads) == (32, 1)
    assert model.config.rope_parameters["rope_theta"] == 10_000.0
    rates = [json.loads(line)["learning_rate"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert max(rates) == pytest.approx(1e-2)
    assert rates[-1] == pytest.approx(1e-2 * (1 - 0.9 * 57 / 58))


def test_a_phi_is_pretrained_with_a_part_of_each_head_rotated(base, base_dir, counting_dir, tmp_path):
    shape = base.architecture.model_copy(update={"family": "phi", "hidden_size": 40, "heads": 2, "kv_heads": 2})
    short = base.training.model_copy(update={"steps": 3})
    phi = base.model_copy(update={"architecture": shape, "training": short})
    summary = pretrain(phi, inputs(base_dir, counting_dir), tmp_path / "out", Execution(device="cpu"), no_progress)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "model")
    assert model.config.model_type == "phi"
    assert model.config.rope_parameters["partial_rotary_factor"] == 0.4
    assert summary["parameters"] == model.num_parameters()


def test_the_same_seed_gives_the_same_base(base, base_dir, counting_dir, tmp_path):
    short = base.model_copy(update={"training": base.training.model_copy(update={"steps": 2})})
    states = []
    for name, recipe in (("a", short), ("b", short), ("c", short.model_copy(update={"seed": 4}))):
        torch.rand(3)
        pretrain(recipe, inputs(base_dir, counting_dir), tmp_path / name, Execution(device="cpu"), no_progress)
        states.append((tmp_path / name / "model" / "model.safetensors").read_bytes())
    assert states[0] == states[1] != states[2]


def test_a_directory_without_tokenizer_is_named(base, counting_dir, tmp_path):
    with pytest.raises(UserError, match=r"holds no tokenizer\.json"):
        pretrain(base, inputs(tmp_path, counting_dir), tmp_path / "out", Execution(device="cpu"), no_progress)
