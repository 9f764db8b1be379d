"""A stand-in for vLLM's offline interface, as far as the backend uses it: transformers answers, one prompt at a time.

It lies on PYTHONPATH where a test wants it, so that it is imported as vllm is, in processes of their own as well.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

__version__ = os.environ.get("STAND_IN_VERSION", "99.0")


@dataclass
class SamplingParams:
    temperature: float = 1.0
    max_tokens: int = 16
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    detokenize: bool = True
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None


class LLM:
    def __init__(self, model: str, dtype: str, max_model_len: int, generation_config: str, **more: Any) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        assert (dtype, generation_config) == ("float32", "vllm")
        self.max_model_len, self.gpu_memory_utilization = max_model_len, more["gpu_memory_utilization"]
        self.seen: list[list[int]] = []
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()

    def generate(self, prompts: list[dict[str, Any]], settings: list[SamplingParams], use_tqdm: bool) -> list[Any]:
        assert not use_tqdm
        return [
            self._answer(list(prompt["prompt_token_ids"]), one)
            for prompt, one in zip(prompts, settings, strict=True)
        ]  # fmt: skip

    def _answer(self, ids: list[int], settings: SamplingParams) -> Any:
        import torch

        assert settings.temperature == 0.0
        assert len(ids) + settings.max_tokens <= self.max_model_len
        if os.environ.get("STAND_IN_DROPS_BOS"):
            ids = ids[1:]
        self.seen.append(ids)
        new: list[int] = []
        prompt_logprobs, logprobs = None, []
        while len(new) < settings.max_tokens:
            with torch.no_grad():
                logs = self._model(torch.tensor([ids + new])).logits[0].log_softmax(-1)
            if settings.prompt_logprobs is not None and prompt_logprobs is None:
                prompt_logprobs = [None, *(_logprobs(logs[at], [id_]) for at, id_ in enumerate(ids[1:]))]
            new.append(int(logs[-1].argmax()))
            logprobs.append(_logprobs(logs[-1], [new[-1], *(settings.logprob_token_ids or [])]))
            if new[-1] in (settings.stop_token_ids or []):
                break
            text = self._tokenizer.decode(new, skip_special_tokens=True) if settings.detokenize else ""
            if any(stop in text for stop in settings.stop or []):
                break
        output = SimpleNamespace(token_ids=new, logprobs=logprobs)
        return SimpleNamespace(prompt_token_ids=ids, prompt_logprobs=prompt_logprobs, outputs=[output])


def _logprobs(logs: Any, ids: list[int]) -> dict[int, Any]:
    return {
        id_: SimpleNamespace(logprob=float(logs[id_]), rank=1 + int((logs > logs[id_]).sum())) for id_ in ids
    }  # fmt: skip
