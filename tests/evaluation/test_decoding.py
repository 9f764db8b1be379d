"""Our greedy decoding gives the token ids of transformers' `generate`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from transformers import AutoConfig, AutoModelForCausalLM

from tokenweight.assets import smoke_base_dir
from tokenweight.evaluation.decoding import _Step, decode_greedily
from tokenweight.evaluation.hf_model import EvaluatedModel, HFModel, _is_greedy
from tokenweight.evaluation.loaded_model import cache_bytes_of_token
from tokenweight.recipes.schema import Execution
from tokenweight.training.models import causal_lm

PROMPTS = ["The old house by the sea", "Once there was a king who had three sons. The eldest of them said", "No"]
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def lm() -> EvaluatedModel:
    model: EvaluatedModel = HFModel(smoke_base_dir(), 1024, Execution(device="cpu"), "fp32").lm
    return model


@pytest.mark.parametrize("ends", ["never", "one row", "all rows", "at a text"])
def test_ids_are_those_of_generate(lm: EvaluatedModel, ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context, mask = lm.tok_batch_encode(PROMPTS)
    longest = context.shape[1] + NEW_TOKENS
    free = lm._model_generate(context, longest, [], attention_mask=mask, do_sample=False)[:, context.shape[1] :]
    of_rows = {"one row": free[1, 5:6], "all rows": free[:, 5]}.get(ends)
    if of_rows is not None:
        monkeypatch.setattr(lm.model.generation_config, "eos_token_id", of_rows.tolist())
    stop = [" "] if ends == "at a text" else []
    wanted = lm._model_generate(context, longest, stop, attention_mask=mask, do_sample=False)
    cache = {lm._cache_argument: lm._read_prompts(context, mask, longest)}
    is_over = lm._is_over(stop, context)
    found = decode_greedily(lm.model, context, mask, cache, longest, lm.tokenizer.pad_token_id, is_over)
    assert found.tolist() == wanted.tolist()
    assert (found.shape[1] < longest) == (ends in ("all rows", "at a text"))


ROPE = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("gemma2", {"sliding_window": 8}),  # no sdpa
        ("falcon", {"alibi": True, "head_dim": None}),  # no mask of four dimensions
        ("gpt_neo", {"num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]], "window_size": 8}),
        (
            "phi3",
            {"rope_scaling": ROPE, "original_max_position_embeddings": 16},
        ),  # frequencies by the longest of a batch
        ("mamba", {"num_attention_heads": None, "num_key_value_heads": None, "head_dim": None}),
        ("recurrent_gemma", {"lru_width": 32, "num_hidden_layers": 3}),  # a state that takes padding for text
    ],
)
def test_in_a_batch_a_prompt_gets_what_it_gets_alone(family: str, settings: dict[str, Any], tmp_path: Path) -> None:
    values = {
        "vocab_size": 4097, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "pad_token_id": 0, **settings,
    }  # fmt: skip
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{name: value for name, value in values.items() if value is not None})
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        parameter.data.mul_(4 if parameter.ndim > 1 else 1)
    model.save_pretrained(tmp_path)
    for file in smoke_base_dir().glob("tokenizer*"):
        shutil.copy(file, tmp_path)
    ours = HFModel(tmp_path, 128, Execution(device="cpu"), "fp32")
    assert cache_bytes_of_token(ours.lm.model.config, 4) > 0
    arguments = {"max_gen_toks": 12, "until": [], "do_sample": False}
    asked = [Instance("generate_until", {}, (text, arguments), number) for number, text in enumerate(PROMPTS)]
    found = ours.ask(asked, min(3, ours.batch_size(40, 12)))
    alone = []
    for ids in map(ours.lm.tok_encode, PROMPTS):
        output = ours.lm.model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=12)
        alone.append(ours.lm.tok_decode(output[0, len(ids) :]))
    assert found == alone


def test_sampling_is_left_to_transformers() -> None:
    assert _is_greedy({"attention_mask": 0, "do_sample": False, "temperature": 0.0})
    assert not _is_greedy({"attention_mask": 0, "do_sample": True})
    assert not _is_greedy({"attention_mask": 0, "temperature": 0.7})
    assert not _is_greedy({"attention_mask": 0, "repetition_penalty": 1.2})


def test_without_memory_for_a_graph_every_step_is_computed(lm: EvaluatedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def full(_: object) -> Iterator[None]:
        raise torch.OutOfMemoryError("CUDA out of memory")
        yield

    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (0, 1))
    monkeypatch.setattr("torch.cuda.CUDAGraph", object)
    monkeypatch.setattr("torch.cuda.graph", full)
    original = _Step.__init__

    def as_on_a_gpu(self: _Step, *given: Any) -> None:
        original(self, *given)
        self.can_be_graph = True

    context, mask = lm.tok_batch_encode(PROMPTS)
    longest = context.shape[1] + 4
    wanted = lm._model_generate(context, longest, [], attention_mask=mask, do_sample=False)
    monkeypatch.setattr(_Step, "__init__", as_on_a_gpu)
    cache = {lm._cache_argument: lm._read_prompts(context, mask, longest)}
    found = decode_greedily(lm.model, context, mask, cache, longest, lm.tokenizer.pad_token_id, None)
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("named", ["flash_attention_2", "eager"])
def test_the_attention_that_a_checkpoints_file_names_is_not_asked_for(named: str, tmp_path: Path) -> None:
    shutil.copytree(smoke_base_dir(), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "_attn_implementation": named}))
    assert causal_lm(tmp_path, torch.float32).config._attn_implementation == "sdpa"
