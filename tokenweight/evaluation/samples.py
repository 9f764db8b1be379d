"""A sample on its way through the model: lm-eval requests before, a scored row after."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenweight.evaluation.rows import Row, sha256_text

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

ECHO_HEAD_CHARACTERS = 40
ECHO_TAIL_CHARACTERS = 200


@dataclass(frozen=True)
class Prompt:
    """A prompt as it will be read: text without BOS, its tokens with BOS, and what was cut to make it fit."""

    text: str
    n_tokens: int
    untruncated_tokens: int
    bos_tokens: int | None  # at its start; None where the tokenizer has no BOS
    left_truncated: bool = False  # the text itself was cut, not only examples left out

    @property
    def truncated(self) -> bool:
        return self.n_tokens < self.untruncated_tokens


@dataclass(frozen=True)
class Scored:
    """What a metric makes of an output."""

    filtered: str  # the part that it compared
    score: float
    tolerant_score: float | None = None


@dataclass(frozen=True)
class Sample:
    """One document of a unit with its requests: one generation, or one log-likelihood per choice."""

    doc_id: int
    instances: list[Instance]
    prompt: Prompt
    references: list[str]
    new_tokens: int  # 0: log-likelihoods
    all_classes: list[str] | None = None  # LongBench's trec
    length_words: int | None = None

    @property
    def text(self) -> str:
        """What is asked; of choices, what stands before each."""
        return str(self.instances[0].args[0])

    @property
    def prompt_sha256(self) -> str:
        return sha256_text(self.text)

    def row(self, output: str, metric: str, scored: Scored) -> Row:
        """The row of this sample, given the model's output and its score."""
        prompt = self.prompt
        return Row(
            doc_id=self.doc_id,
            prompt_sha256=self.prompt_sha256,
            n_prompt_tokens=prompt.n_tokens,
            untruncated_tokens=prompt.untruncated_tokens,
            truncated=prompt.truncated,
            length_words=self.length_words,
            output=output,
            reference=json.dumps(self.references),
            metric=metric,
            bos_tokens=prompt.bos_tokens,
            left_truncated=prompt.left_truncated,
            echoed=self.new_tokens > 0 and echoes(output, self.text),
            **vars(scored),
        )


def echoes(output: str, prompt: str) -> bool:
    """Whether an output repeats its prompt, white space aside.

    It does if it begins as the prompt begins, if it begins with a piece of the prompt's end that is at least its last
    200 characters, or if the whole prompt stands anywhere in it. Prompts under 40 characters are not judged.
    """
    asked, answered = " ".join(prompt.split()), " ".join(output.split())
    if len(asked) < ECHO_HEAD_CHARACTERS:
        return False
    if answered.startswith(asked[:ECHO_HEAD_CHARACTERS]) or asked in answered:
        return True
    tail = asked[-ECHO_TAIL_CHARACTERS:]
    place = answered.find(tail)
    return place >= 0 and asked.endswith(answered[: place + len(tail)])
