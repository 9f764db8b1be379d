"""A sample on its way through the model: lm-eval requests before, a scored row after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenweight.evaluation.guards import echoes
from tokenweight.evaluation.rows import Row, sha256_text

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


@dataclass(frozen=True)
class Scored:
    """What a benchmark makes of the model's answer."""

    output: str
    filtered: str
    reference: str  # JSON list
    metric: str
    score: float
    tolerant_score: float | None = None


@dataclass(frozen=True)
class Sample:
    """One document of a unit with its requests: one generation, or one log-likelihood per choice."""

    doc_id: int
    instances: list[Instance]
    n_prompt_tokens: int
    untruncated_tokens: int | None
    truncated: bool
    length_words: int | None
    max_new_tokens: int  # 0: log-likelihoods
    score: Callable[[list[Any]], Scored]  # from the answers to `instances`
    bos_tokens: int | None = None
    left_truncated: bool = False

    @property
    def prompt(self) -> str:
        return str(self.instances[0].args[0])

    @property
    def prompt_sha256(self) -> str:
        return sha256_text(self.prompt)

    def row(self, answers: list[Any]) -> Row:
        """The row of this sample, given the model's answers."""
        scored = self.score(answers)
        return Row(
            doc_id=self.doc_id,
            prompt_sha256=self.prompt_sha256,
            n_prompt_tokens=self.n_prompt_tokens,
            untruncated_tokens=self.untruncated_tokens,
            truncated=self.truncated,
            length_words=self.length_words,
            output=scored.output,
            filtered=scored.filtered,
            reference=scored.reference,
            metric=scored.metric,
            score=scored.score,
            tolerant_score=scored.tolerant_score,
            bos_tokens=self.bos_tokens,
            left_truncated=self.left_truncated,
            echoed=self.max_new_tokens > 0 and echoes(scored.output, self.prompt),
        )
