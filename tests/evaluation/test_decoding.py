"""Our greedy decoding gives the token ids of transformers' `generate`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tokenweight.assets import smoke_base_dir
from tokenweight.evaluation.decoding import _Step, decode_greedily
from tokenweight.evaluation.hf_model import EvaluatedModel, HFModel, _is_greedy
from tokenweight.recipes.schema import Execution

PROMPTS = ["The old house by the sea", "Once there was a king who had three sons. The eldest of them said", "No"]
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def lm() -> EvaluatedModel:
    model: EvaluatedModel = HFModel(smoke_base_dir(), 1024, Execution(device="cpu")).lm
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
