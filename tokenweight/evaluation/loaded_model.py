"""What a benchmark may ask of a model, whichever backend runs it; each prompt is checked here before a model reads it.

Heavy backends are loaded by :func:`load`, where a model is about to run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.errors import StageError
from tokenweight.evaluation.tokens import end_of_text
from tokenweight.recipes.schema import Backend, Execution

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


@dataclass(frozen=True)
class Prompt:
    """A prompt as it will be read: text without BOS, its tokens with BOS, and what was cut to make it fit."""

    text: str
    n_tokens: int
    untruncated_tokens: int

    @property
    def truncated(self) -> bool:
        return self.n_tokens < self.untruncated_tokens


class LoadedModel(ABC):
    """A checkpoint that one backend has loaded, and what a benchmark may ask of it.

    `lm` is one of lm-eval's models with its tokenizer; `context_tokens` is the longest input and answer together.
    """

    def __init__(self, lm: Any, context_tokens: int) -> None:
        self.lm = lm
        self.context_tokens = context_tokens
        self._bos = lm.tokenizer.bos_token_id
        self._adds_bos = self._bos is not None and self.encode("a")[:1] == [self._bos]

    @abstractmethod
    def batch_size(self, longest_tokens: int, new_tokens: int) -> int:
        """How many sequences of at most `longest_tokens` are asked together (`new_tokens` 0: log-likelihoods)."""

    @abstractmethod
    def generate(self, instances: list[Instance]) -> list[str]:
        """Greedy continuations of one batch of requests with equal generation arguments."""

    @abstractmethod
    def log_likelihoods(self, instances: list[Instance], contexts: int) -> list[tuple[float, bool]]:
        """(log-likelihood in nats, is greedy) of each request's continuation; `contexts`: how many differ."""

    def encode(self, text: str) -> list[int]:
        """Token ids as lm-eval encodes a request, BOS included where the tokenizer adds one."""
        ids: list[int] = self.lm.tok_encode(text)
        return ids

    def count(self, text: str) -> int:
        """Tokens of a request; checks that exactly one BOS stands at its start where the tokenizer adds one.

        Raises:
            StageError: BOS missing or doubled.
        """
        ids = self.encode(text)
        if self._adds_bos and ids[:1] != [self._bos]:
            raise StageError("BOS is missing at the start of a prompt though the tokenizer adds one")
        if self._bos is not None and ids[:2] == [self._bos] * 2:
            raise StageError("BOS stands twice at the start of a prompt; the prompt text must not contain it")
        return len(ids)

    def checked(self, text: str, new_tokens: int) -> int:
        """Tokens of a request that must fit as it is.

        Raises:
            StageError: prompt and answer exceed the context; lm-eval would cut the prompt's beginning, BOS and all.
        """
        n_tokens = self.count(text)
        if n_tokens + new_tokens > self.context_tokens:
            raise StageError(
                f"a prompt of {n_tokens} tokens and {new_tokens} for the answer exceed the context of "
                f"{self.context_tokens}: it would be cut on the left"
            )
        return n_tokens

    def fitting(self, prompt_with: Callable[[int], str], shots: int, new_tokens: int) -> Prompt:
        """The few-shot prompt with as many examples as fit; if none does, the question's end behind BOS.

        `prompt_with(k)` is the prompt with k examples. Only models with short contexts need less than all.
        """
        room = self.context_tokens - new_tokens
        full = text = prompt_with(shots)
        untruncated = n_tokens = self.count(full)
        while n_tokens > room and shots > 0:
            shots -= 1
            text = prompt_with(shots)
            n_tokens = self.count(text)
        kept = room
        while n_tokens > room:
            kept -= 1
            text = self.lm.tok_decode(self.lm.tok_encode(text, add_special_tokens=False)[-kept:])
            n_tokens = self.count(text)
        return Prompt(text, n_tokens, untruncated)


def name_end_of_text(tokenizer: Any, checkpoint_dir: Path) -> None:
    """Give a bare tokenizer its end-of-text token. UserError: none is known."""
    if tokenizer.eos_token is None:
        tokenizer.eos_token = end_of_text(tokenizer, str(checkpoint_dir))


def cache_bytes_of_token(config: Any, element_bytes: int) -> int:
    """Bytes of the keys and values of one token in all layers, by a model's configuration."""
    config = config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * width * element_bytes)


def load(backend: Backend, checkpoint_dir: Path, context_tokens: int, execution: Execution) -> LoadedModel:
    """The checkpoint by the backend.

    Raises:
        UserError: the backend cannot run here, or cannot run this checkpoint.
    """
    if backend == "vllm":
        from tokenweight.evaluation.vllm_backend import VllmModel

        return VllmModel(checkpoint_dir, context_tokens, execution)
    from tokenweight.evaluation.harness import Harness

    return Harness(checkpoint_dir, context_tokens, execution)
