"""Context extension: the frequencies after reload are the formula's."""

import json
import math
import os
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)

from tokenweight.authors_compat import with_plain_rope
from tokenweight.context.checkpoint_files import copy_tokenizer
from tokenweight.context.extend import check_extension, extend
from tokenweight.context.rope import assert_rope, expected_inv_freq, restore_rope
from tokenweight.errors import StageError, UserError
from tokenweight.recipes.schema import Extension

SMALL = {
    "vocab_size": 30,
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
}


@pytest.fixture
def llama_dir(tmp_path):
    folder = tmp_path / "llama"
    LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "record.json").write_text("{}")
    return folder


@pytest.fixture
def phi_dir(tmp_path):
    folder = tmp_path / "phi"
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
    PhiForCausalLM(PhiConfig(**SMALL, rope_parameters=rope)).save_pretrained(folder)
    return folder


def formula(theta, dimension):
    return torch.tensor([theta ** (-2 * i / dimension) for i in range(dimension // 2)])


def reload(out_dir):
    return AutoModelForCausalLM.from_pretrained(out_dir / "model", local_files_only=True)


def test_abf_sets_theta_and_context(llama_dir, tmp_path):
    extend(llama_dir, Extension(long_tokens=512, rope_theta=306_000.0), tmp_path / "out")
    model = reload(tmp_path / "out")
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, formula(306_000.0, 32))
    assert model.config.max_position_embeddings == 512
    assert_rope(model, model.config)
    model.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(
        AutoModelForCausalLM.from_pretrained(tmp_path / "again").model.rotary_emb.inv_freq, formula(306_000.0, 32)
    )


def test_partial_rotary_factor_survives(phi_dir, tmp_path):
    extend(phi_dir, Extension(long_tokens=512, rope_theta=500_000.0), tmp_path / "out")
    model = reload(tmp_path / "out")
    assert model.config.rope_parameters["partial_rotary_factor"] == 0.5
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, formula(500_000.0, 16))
    assert_rope(model, model.config)


def test_a_llama_3_scaling_keeps_its_type(tmp_path):
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    LlamaForCausalLM(LlamaConfig(**SMALL, rope_parameters=rope)).save_pretrained(tmp_path / "base")
    extend(tmp_path / "base", Extension(long_tokens=512, rope_theta=8e6), tmp_path / "out")
    model = reload(tmp_path / "out")
    assert model.config.rope_parameters == {**rope, "rope_theta": 8e6}
    assert_rope(model, model.config)


def test_yarn_keeps_the_length_that_it_was_made_for(tmp_path):
    """Frequencies by the formula of Peng et al. (2023), with the lengths before and after its own extension, not ours."""
    rope = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    LlamaForCausalLM(LlamaConfig(**SMALL, rope_parameters=rope)).save_pretrained(tmp_path / "base")
    extend(tmp_path / "base", Extension(long_tokens=512, rope_theta=1e6), tmp_path / "out")
    model = reload(tmp_path / "out")
    assert model.config.rope_parameters | rope | {"rope_theta": 1e6} == model.config.rope_parameters
    plain, turns = formula(1e6, 32), lambda count: 32 * math.log(32 / (count * 2 * math.pi)) / (2 * math.log(1e6))
    low, high = max(math.floor(turns(32)), 0), min(math.ceil(turns(1)), 31)
    ramp = ((torch.arange(16) - low) / (high - low)).clamp(0, 1)
    torch.testing.assert_close(model.model.rotary_emb.inv_freq, plain / 4 * ramp + plain * (1 - ramp))
    assert_rope(model, model.config)


@pytest.mark.parametrize("place", [0, 15])
def test_a_frequency_that_is_off_by_a_thousandth_is_found(llama_dir, tmp_path, place):
    """The slowest is 2e-7: by an absolute tolerance any is like it."""
    extend(llama_dir, Extension(long_tokens=512, rope_theta=15_300_000.0), tmp_path / "out")
    model = reload(tmp_path / "out")
    model.model.rotary_emb.inv_freq[place] *= 1.001
    with pytest.raises(StageError, match="differs from the frequencies"):
        assert_rope(model, model.config)


def test_weights_and_companions_are_copies(llama_dir, tmp_path):
    """Who writes into one must not change the other, which may be the package's own."""
    (tmp_path / "out" / "model").mkdir(parents=True)
    (tmp_path / "out" / "model" / "half-written").write_text("")
    extend(llama_dir, Extension(long_tokens=512, rope_theta=306_000.0), tmp_path / "out")
    model = tmp_path / "out" / "model"
    assert not os.path.samefile(model / "model.safetensors", llama_dir / "model.safetensors")
    assert (model / "model.safetensors").read_bytes() == (llama_dir / "model.safetensors").read_bytes()
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["model"]
    assert sorted(p.name for p in model.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    before, after = (json.loads((d / "config.json").read_text()) for d in (llama_dir, model))
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    assert changed <= {"max_position_embeddings", "rope_parameters", "rope_theta", "transformers_version"}


def test_a_tokenizer_travels_without_the_model(llama_dir, tmp_path):
    copy_tokenizer(llama_dir, tmp_path)
    copied = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    assert copied == {"tokenizer.json": (llama_dir / "tokenizer.json").read_bytes()}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "config.json").unlink(), "no config.json"),
        (lambda d: (d / "config.json").write_text("{"), "cannot be read"),
        (lambda d: (d / "model.safetensors").unlink(), "no weights"),
        (lambda d: (d / "config.json").write_text('{"model_type": "gpt2"}'), "no RoPE, or several"),
    ],
)
def test_a_directory_that_is_no_checkpoint_is_named(llama_dir, tmp_path, damage, message):
    damage(llama_dir)
    with pytest.raises(UserError, match=message) as caught:
        extend(llama_dir, Extension(long_tokens=512, rope_theta=306_000.0), tmp_path / "out")
    assert "llama" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shorter_context_is_refused(llama_dir, tmp_path):
    with pytest.raises(UserError, match=r"extension\.long_tokens: 64 is less"):
        extend(llama_dir, Extension(long_tokens=64, rope_theta=306_000.0), tmp_path / "out")
    own = json.loads((llama_dir / "config.json").read_text())["max_position_embeddings"]
    extend(llama_dir, Extension(long_tokens=own, rope_theta=306_000.0), tmp_path / "out")


def test_a_theta_below_the_base_s_own_is_refused(llama_dir, tmp_path):
    """A base of a longer context at a small scale: theta would go down without a word."""
    with pytest.raises(UserError, match=r"extension\.rope_theta: 5,000 is less than the base's 10,000"):
        extend(llama_dir, Extension(long_tokens=512, rope_theta=5_000.0), tmp_path / "out")


def test_a_base_of_other_fields_is_judged_and_an_unknown_one_not():
    extension = Extension(long_tokens=512, rope_theta=5_000.0)
    check_extension(None, extension)
    with pytest.raises(UserError, match=r"5,000 is less than the base's 10,000"):
        check_extension(SimpleNamespace(rope_theta=10_000.0), extension)


def test_rounded_and_unchanged_frequencies_are_found_and_restored(llama_dir):
    model = AutoModelForCausalLM.from_pretrained(llama_dir)
    asked = LlamaConfig(**SMALL, rope_parameters={"rope_type": "default", "rope_theta": 306_000.0})
    with pytest.raises(StageError, match="differs"):
        assert_rope(model, asked)
    model.to(torch.bfloat16)
    with pytest.raises(StageError, match="bfloat16"):
        assert_rope(model, model.config)
    restore_rope(model, model.config)
    assert_rope(model, model.config)
    assert torch.equal(model.model.rotary_emb.inv_freq, expected_inv_freq(model.config))
    with pytest.raises(StageError, match="no rotary"):
        assert_rope(torch.nn.Linear(2, 2), model.config)


@pytest.mark.parametrize(("name", "head_dim", "factor", "changed"), [("1B", 64, 32.0, 17), ("3B", 128, 32.0, 35)])
def test_scorers_of_the_authors_lose_their_scaled_frequencies(name, head_dim, factor, changed):
    """Llama 3.2: half of the frequencies are another model's without `rope_type` llama3."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(head_dim=head_dim, max_position_embeddings=131_072, rope_parameters=rope)
    plain = with_plain_rope(config, 8192)
    assert plain.rope_parameters == {"rope_type": "default", "rope_theta": 500_000.0}
    assert plain.max_position_embeddings == 8192
    assert (config.rope_parameters, config.max_position_embeddings) == (rope, 131_072)
    own, theirs = expected_inv_freq(config), expected_inv_freq(plain)
    assert len(own) == head_dim // 2
    assert (~torch.isclose(own, theirs, rtol=1e-5, atol=0)).sum() == changed


def test_a_scorer_with_plain_rope_stays_what_it_is(phi_dir):
    config = AutoModelForCausalLM.from_pretrained(phi_dir).config
    assert torch.equal(expected_inv_freq(with_plain_rope(config, 64)), expected_inv_freq(config))


def test_bf16_would_turn_the_frequencies_of_32k_by_many_radians():
    """What DeepSpeed 0.16.3 does to inv_freq; assert_rope refuses it and restore_rope undoes it."""
    config = LlamaConfig(head_dim=128, rope_parameters={"rope_type": "default", "rope_theta": 15_300_000.0})
    exact = expected_inv_freq(config).double()
    turned = ((exact.bfloat16().double() - exact) * 32_767).abs()
    assert (turned > 0.5).sum() == 15
    assert turned.max() == pytest.approx(43.8, abs=0.05)


def test_a_window_shorter_than_the_new_context_is_refused(tmp_path):
    folder = tmp_path / "sliding"
    kept = MistralConfig(**SMALL, num_key_value_heads=2)
    MistralForCausalLM(kept).save_pretrained(folder)
    for window in (64, 1, 511, 512, None):
        kept.sliding_window = window
        kept.save_pretrained(folder)
        refused = pytest.raises(UserError, match=rf"sees the last {window} tokens \(sliding_window\), fewer than 512")
        with refused if window and window < 512 else nullcontext():
            extend(folder, Extension(long_tokens=512, rope_theta=306_000.0), tmp_path / "out")
