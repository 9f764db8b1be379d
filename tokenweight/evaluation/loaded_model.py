"""What a benchmark may ask of a model, whichever backend runs it; each prompt is checked here before a model reads it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.rows import Row, sha256_ids, sha256_text

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


@dataclass(frozen=True)
class Prompt:
    """A prompt as it will be read: text without BOS, its tokens with BOS, and what was cut to make it fit."""

    text: str
    n_tokens: int
    untruncated_tokens: int
    bos_tokens: int | None  # at its start; None where the tokenizer has no BOS
    left_truncated: bool = False  # the text itself was cut, not only examples left out
    special_tokens: int = 0  # spelled out behind BOS

    @property
    def truncated(self) -> bool:
        return self.n_tokens < self.untruncated_tokens


class LoadedModel:
    """`lm` is one of lm-eval's models with its tokenizer; `context_tokens` is the longest input and answer together."""

    batch_tokens: int  # of a batch, answers included
    logits_tokens: float = math.inf  # of a batch of log-likelihoods, which needs logits for every token
    max_sequences: int

    def __init__(self, lm: Any, checkpoint_dir: Path, context_tokens: int) -> None:
        from tokenweight.corpus.encoding import special_ids

        self.lm = lm
        self._answers: dict[str, Any] = {}  # by the digest of what was asked
        self.checkpoint_dir = checkpoint_dir
        self.context_tokens = context_tokens
        tokenizer = lm.tokenizer
        self._bos, self._special = tokenizer.bos_token_id, frozenset(special_ids(tokenizer))
        self._adds_bos = self._bos is not None and tokenizer("a")["input_ids"][:1] == [self._bos]
        # GPT-2's kind names its end-of-text token as BOS too, and adds none: there is no BOS to miss.
        self._has_bos = self._bos is not None and (self._adds_bos or self._bos != tokenizer.eos_token_id)

    def batch_size(self, longest_tokens: int, new_tokens: int) -> int:
        """How many sequences of at most `longest_tokens` are asked together (`new_tokens` 0: log-likelihoods)."""
        tokens = self.batch_tokens if new_tokens else min(self.batch_tokens, self.logits_tokens)
        return max(1, min(self.max_sequences, int(tokens // longest_tokens)))

    def ask(self, instances: list[Instance], sequences: int) -> list[Any]:
        """Answers to one batch of requests of one kind with `sequences` contexts: greedy continuations, or of each given
        continuation (log-likelihood in nats, is greedy). What was answered before, as for another metric, is not asked."""
        keys = [sha256_text(repr((one.request_type, one.args))) for one in instances]
        if new := {key: one for key, one in zip(keys, instances, strict=True) if key not in self._answers}:
            self.lm.batch_size_per_gpu = sequences  # hf's
            answers = getattr(self.lm, instances[0].request_type)(list(new.values()), disable_tqdm=True)
            self._answers.update(zip(new, answers, strict=True))
        return [self._answers[key] for key in keys]

    def with_nll_head(self, benchmark: str) -> Any:
        """The transformers model with the head that gives every token's NLL. UserError: it would change its logits."""
        from tokenweight.weighting import install_head

        model = self.lm.model
        try:
            install_head(model)
        except ValueError as error:
            raise UserError(f"{benchmark}: {error}; choose --benchmarks without {benchmark}") from None
        return model

    def bos_tokens(self, ids: Sequence[int]) -> int | None:
        """How many BOS tokens are at the start; None where the tokenizer has no BOS."""
        if not self._has_bos:
            return None
        return sum(1 for _ in takewhile(lambda token: token == self._bos, ids))

    def row_of(self, doc_id: int, ids: Any, metric: str, score: float, output: str = "") -> Row:
        """The row of a text that was read as token ids [N], BOS included."""
        return Row(
            doc_id=doc_id,
            prompt_sha256=sha256_ids(ids),
            n_prompt_tokens=len(ids),
            output=output,
            metric=metric,
            score=score,
            bos_tokens=self.bos_tokens(ids),
        )

    def read(self, text: str) -> Prompt:
        """A request as the model will read it. StageError: BOS missing though the tokenizer adds one, or doubled."""
        ids = self.lm.tok_encode(text)
        if self._adds_bos and ids[:1] != [self._bos]:
            raise StageError(
                "BOS is missing at the start of a prompt though the tokenizer adds one: lm-eval encodes it in another "
                "way; check add_bos_token in tokenizer_config.json"
            )
        if self._bos is not None and ids[:2] == [self._bos] * 2:
            raise StageError("BOS occurs twice at the start of a prompt; remove it from the prompt text")
        bos = self.bos_tokens(ids)
        return Prompt(text, len(ids), len(ids), bos, special_tokens=sum(id in self._special for id in ids[bos or 0 :]))

    def checked(self, text: str, new_tokens: int) -> Prompt:
        """A request that must fit as it is. StageError: it does not; lm-eval would cut its beginning, BOS and all."""
        prompt = self.read(text)
        if prompt.n_tokens + new_tokens > self.context_tokens:
            raise StageError(
                f"a prompt of {prompt.n_tokens} tokens and {new_tokens} for the answer exceed the context of "
                f"{self.context_tokens}: it would be truncated on the left; give a shorter length"
            )
        return prompt

    def fitting(self, prompt_with: Callable[[int], str], shots: int, new_tokens: int) -> Prompt:
        """The few-shot prompt with as many examples as fit; if none does, the question's end behind BOS.

        `prompt_with(k)` is the prompt with k examples. Only models with short contexts need less than all.
        """
        room = self.context_tokens - new_tokens
        prompt = self.read(prompt_with(shots))
        untruncated = prompt.n_tokens
        while prompt.n_tokens > room and shots > 0:
            shots -= 1
            prompt = self.read(prompt_with(shots))
        cut, kept = prompt.n_tokens > room, room
        while prompt.n_tokens > room:
            kept -= 1
            ids = self.lm.tok_encode(prompt.text, add_special_tokens=False)
            prompt = self.read(self.lm.tok_decode(ids[-kept:]))
        return replace(prompt, untruncated_tokens=untruncated, left_truncated=cut)


def cache_bytes_of_token(config: Any, element_bytes: int) -> int:
    """Bytes of the keys and values of one token in all layers, by a model's configuration."""
    config = config.get_text_config()
    heads = getattr(config, "num_attention_heads", None) or 1  # Mamba has none, and less to keep than this
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    kept = getattr(config, "num_key_value_heads", None) or heads
    return int(2 * config.num_hidden_layers * kept * width * element_bytes)
