"""Backend `hf`: lm-eval's Hugging Face model, loaded once. Imported only where a model is about to run."""

from __future__ import annotations

import contextlib
import inspect
import math
from array import array
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from cachetools import LRUCache
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils_hf import stop_sequences_criteria
from transformers import GenerationConfig, StaticCache
from transformers.cache_utils import DynamicCache, StaticLayer

from tokenweight.evaluation.decoding import decode_greedily
from tokenweight.evaluation.loaded_model import LoadedModel, cache_bytes_of_token
from tokenweight.evaluation.rows import sha256_text
from tokenweight.evaluation.tokens import model_tokenizer
from tokenweight.recipes.schema import Execution, Precision
from tokenweight.training.models import causal_lm, resolve_device

MAX_BATCH_SEQUENCES = {"cpu": 64, "cuda": 512}
CPU_BATCH_SEQUENCES = 8
CACHE_SHARE = 0.4  # of a GPU's memory: attention repeats a layer's keys and values beside the cache
READ_TOKENS = {"cpu": 1, "cuda": 2**16}  # of prompts that are read together on one device, one at least
RUN_OVER_PADDING = ("recurrent_gemma", "rwkv", "xlstm")  # models whose state takes padding for text
ENCODED_TOKENS = 2**24  # token ids kept for the models of one tokenizer: 64 MiB
LOGITS_ELEMENTS = {"cpu": 2**26, "cuda": 2**31}  # fp32 elements of the batches on one device: 256 MiB, 8 GiB


class EvaluatedModel(HFLM):  # type: ignore[misc]
    """lm-eval's HFLM, reading prompts of different lengths a few at a time and then decoding them together.

    Padded on the left, a prefill needs a [batch, tokens, tokens] mask and loses the causal attention kernel. Padded on the
    right it needs neither, gives the same outputs, and takes the memory of the few prompts that fill a GPU.

    Each prompt is encoded when it is checked, when lm-eval sorts a batch, when it pads it, and for the next model.
    """

    has_gpu_alone = False  # graphs keep memory that eight processes on one GPU did not have left
    read_tokens = 1  # of prompts that are read together: our share of the device's

    def __init__(self, *, tokenizer: Any, **arguments: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._encoded = _encoded_by(sha256_text(backend.to_str() if backend else tokenizer.name_or_path))
        super().__init__(tokenizer=tokenizer, **arguments)

    def tok_encode(self, string: str, *arguments: Any, **keywords: Any) -> list[int]:
        key = (sha256_text(string), arguments, *sorted(keywords.items()))
        if (ids := self._encoded.get(key)) is None:
            ids = array("i", super().tok_encode(string, *arguments, **keywords))
            with contextlib.suppress(ValueError):  # longer than all that is kept
                self._encoded[key] = ids
        return list(ids)  # it is the caller's

    def tok_batch_encode(
        self, strings: list[str], padding_side: str = "left", left_truncate_len: int | None = None, **_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ids = [self.tok_encode(string)[-(left_truncate_len or 0) :] for string in strings]
        padded = self.tokenizer.pad({"input_ids": ids}, padding_side=padding_side, return_tensors="pt")
        return padded["input_ids"], padded["attention_mask"]

    def _model_generate(self, context: Any, max_length: int, stop: list[str], **arguments: Any) -> Any:
        mask = arguments["attention_mask"]
        cache = self._read_prompts(context, mask, max_length) if int(mask.sum(1).min()) > 1 else None
        if cache is not None and self.has_gpu_alone and _is_greedy(arguments):
            of_cache, padding = {self._cache_argument: cache}, self.tokenizer.pad_token_id
            is_over = self._is_over(
                [text for text in stop if text != self.tok_decode(self.eot_token_id, skip_special_tokens=False)],
                context,
            )
            return decode_greedily(self.model, context, mask, of_cache, max_length, padding, is_over)
        if cache is not None:
            arguments |= {self._cache_argument: cache, "disable_compile": True}
        return super()._model_generate(context, max_length=max_length, stop=stop, **arguments)

    def _is_over(self, stop: list[str], context: torch.Tensor) -> Callable[[torch.Tensor], bool] | None:
        """Whether each answer holds one of the texts at which lm-eval cuts it; None: there are none."""
        if not stop:
            return None
        criteria = stop_sequences_criteria(self.tokenizer, stop, context.shape[1], len(context))
        return lambda ids: bool(torch.as_tensor(criteria(ids, None)).all())

    @property
    def _cache_argument(self) -> str:
        """`cache` in newer transformers, `past_key_values` before."""
        return "cache" if "cache" in inspect.signature(self.model.forward).parameters else "past_key_values"

    @torch.no_grad()
    def _read_prompts(self, context: torch.Tensor, mask: torch.Tensor, max_length: int) -> StaticCache | None:
        """Keys and values of all but the last token of each left-padded prompt; None if the model keeps other state.

        Shapes: context and mask [batch, tokens].
        """
        # What transformers cannot compile, or Falcon's ALiBi, which reads two-dimensional masks, takes no cache of ours.
        if not self.model._can_compile_fullgraph or getattr(self.model.config, "alibi", False):
            return None
        joint = StaticCache(config=self.model.config, max_cache_len=max_length)
        if not all(type(layer) is StaticLayer for layer in joint.layers):
            return None
        lengths = mask.sum(1).tolist()
        together = max(1, self.read_tokens // max(lengths))
        caches = []
        for first in range(0, len(context), together):
            tokens = [n - 1 for n in lengths[first : first + together]]
            rows = [ids[-n - 1 : -1] for ids, n in zip(context[first:], tokens, strict=False)]
            cache = _PromptCache(config=self.model.config)
            with contextlib.suppress(_PromptRead):
                prompts = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
                self.model(prompts, use_cache=True, logits_to_keep=1, **{self._cache_argument: cache})
            caches.append((cache, tokens))
        for index in range(len(joint.layers)):
            layers: list[Any] = [(cache.layers[index], tokens) for cache, tokens in caches]
            keys = _left_padded([(layer.keys, tokens) for layer, tokens in layers], context.shape[1] - 1)
            values = _left_padded([(layer.values, tokens) for layer, tokens in layers], context.shape[1] - 1)
            joint.update(keys, values, index)
            for layer, _ in layers:
                layer.keys = layer.values = None
        return joint


@lru_cache(maxsize=1)
def _encoded_by(_tokenizer_sha256: str) -> LRUCache[Any, array[int]]:
    """Token ids of texts, for all models that this process evaluates with that tokenizer."""
    return LRUCache(ENCODED_TOKENS, getsizeof=len)


class _PromptRead(Exception):
    """The keys and values of a prompt are complete: what the model would still compute of it is not needed."""


class _PromptCache(DynamicCache):
    """Keys and values of one prompt; ends the pass where the last layer's are there.

    That layer's attention over the whole prompt serves its last token alone, which is read again with the answer: half of
    the attention of a model of two layers.
    """

    def update(self, *arguments: Any, **keywords: Any) -> tuple[torch.Tensor, torch.Tensor]:
        states = super().update(*arguments, **keywords)
        if all(getattr(layer, "is_initialized", False) for layer in self.layers):
            raise _PromptRead
        return states


def _left_padded(states: list[tuple[torch.Tensor, list[int]]], tokens: int) -> torch.Tensor:
    """Of prompts [group, heads, longest, width], each with its own tokens first -> [batch, heads, tokens, width]."""
    rows = ((row[:, :n], n) for group, lengths in states for row, n in zip(group, lengths, strict=True))
    return torch.stack([torch.nn.functional.pad(row, (0, 0, tokens - n, 0)) for row, n in rows])


class HFModel(LoadedModel):
    """One checkpoint loaded by transformers, and what may be asked of it."""

    def __init__(self, checkpoint_dir: Path, context_tokens: int, execution: Execution, precision: Precision) -> None:
        device = resolve_device(execution.device).type
        tokenizer = model_tokenizer(checkpoint_dir)
        model = causal_lm(checkpoint_dir, torch.bfloat16 if precision == "bf16" else torch.float32)
        model.to(device)
        model.generation_config = _greedy(model, tokenizer)
        sequences = execution.eval_batch_sequences or (CPU_BATCH_SEQUENCES if device == "cpu" else None)
        if sequences:
            self.batch_tokens = sequences * context_tokens
        else:  # so many that their keys and values fit
            room = CACHE_SHARE / execution.slots_per_gpu * torch.cuda.mem_get_info()[1]  # all: what is free, varies
            cache_bytes = cache_bytes_of_token(model.config, model.dtype.itemsize)
            self.batch_tokens = max(context_tokens, int(room / cache_bytes))
        elements = LOGITS_ELEMENTS[device] // execution.slots_per_gpu
        self.logits_tokens = elements // model.config.get_text_config().vocab_size
        self.max_sequences = MAX_BATCH_SEQUENCES[device]
        lm = EvaluatedModel(
            pretrained=model.eval(),
            tokenizer=tokenizer,
            max_length=context_tokens,
            batch_size=1,  # set for each batch
            softmax_dtype="float32",
        )
        lm.has_gpu_alone = device == "cuda" and execution.slots_per_gpu == 1
        lm.read_tokens = READ_TOKENS[device] // execution.slots_per_gpu
        super().__init__(lm, checkpoint_dir, context_tokens)
        rope = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
        self.alike_tokens = math.inf  # in a batch longer sequences would change what shorter ones get
        if rope.get("rope_type") == "longrope":  # Phi-3's frequencies are those of the batch's longest sequence
            self.alike_tokens = rope["original_max_position_embeddings"]
        elif model.config.model_type in RUN_OVER_PADDING:
            self.alike_tokens = 0

    def batch_size(self, longest_tokens: int, new_tokens: int) -> int:
        return 1 if longest_tokens > self.alike_tokens else super().batch_size(longest_tokens, new_tokens)


def _is_greedy(arguments: dict[str, Any]) -> bool:
    sampled = arguments.get("do_sample") or arguments.get("temperature")
    return not sampled and arguments.keys() <= {"attention_mask", "do_sample", "temperature"}


def _greedy(model: Any, tokenizer: Any) -> GenerationConfig:
    """Plain greedy decoding: of a checkpoint's own generation settings only the token ids stay."""
    own = model.generation_config
    eos = own.eos_token_id if own.eos_token_id is not None else tokenizer.eos_token_id
    return GenerationConfig(bos_token_id=own.bos_token_id, eos_token_id=eos, do_sample=False)  # type: ignore[no-untyped-call]
