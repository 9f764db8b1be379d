"""Generate RULER samples: any of the 13 tasks at any length that holds it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.ruler.aggregation import CommonWords, FrequentWords
from tokenweight.evaluation.ruler.draft import Draft, Draws, Family
from tokenweight.evaluation.ruler.niah import NeedleInHaystack
from tokenweight.evaluation.ruler.qa import DocumentQuestions
from tokenweight.evaluation.ruler.sizing import Budget, draw_fitting, find_demonstration_size, find_size
from tokenweight.evaluation.ruler.sources import Sources, haystack_words, questions
from tokenweight.evaluation.ruler.tasks import Profile, RulerTask, ruler_task
from tokenweight.evaluation.ruler.variable_tracking import DEMONSTRATION_TOKENS, VariableTracking
from tokenweight.evaluation.tokens import TokenCounter, check_tokenizer, token_counter

SHORTEST_TOKENS = 512


@dataclass(frozen=True)
class RulerSample:
    """One sample: the whole prompt (answer prefix included, BOS not), what counts as right, and its length.

    `length_tokens` = BOS + prompt + tokens to generate (in profile `official-2024` as that program counts it).
    """

    index: int
    prompt: str
    answer_prefix: str
    outputs: list[str]
    length_tokens: int


def check_request(task: str, length_tokens: int, tokenizer_dir: Path, sources: Sources) -> RulerTask:
    """The task, after every check that needs neither tokenizer nor drawing: a mistake is told at once.

    Raises:
        UserError: unknown task, a length below 512, no tokenizer, or a source that is missing.
    """
    spec = ruler_task(task)
    if length_tokens < SHORTEST_TOKENS:
        raise UserError(f"ruler.lengths_tokens: {length_tokens} is too short; use at least {SHORTEST_TOKENS}")
    check_tokenizer(tokenizer_dir)
    sources.files(spec)
    return spec


def generate(
    task: str,
    length_tokens: int,
    samples: int,
    seed: int,
    tokenizer_dir: Path,
    sources: Sources | None = None,
    profile: Profile = "paper",
) -> list[dict[str, Any]]:
    """Samples as RULER's JSON lines: index, input (without the answer prefix), answer_prefix, outputs, length.

    The same arguments give the same samples in any order, process and hash seed.

    Raises:
        UserError: unknown task, a source that cannot be read, or a length that cannot hold the task.
    """
    drawn = generate_samples(task, length_tokens, samples, seed, tokenizer_dir, sources, profile)
    return [
        {
            "index": sample.index,
            "input": sample.prompt.removesuffix(sample.answer_prefix),
            "answer_prefix": sample.answer_prefix,
            "outputs": sample.outputs,
            "length": sample.length_tokens,
        }
        for sample in drawn
    ]


def generate_samples(
    task: str,
    length_tokens: int,
    samples: int,
    seed: int,
    tokenizer_dir: Path,
    sources: Sources | None = None,
    profile: Profile = "paper",
) -> list[RulerSample]:
    """The same as :func:`generate`, with whole prompts."""
    sources = sources or Sources()
    spec = check_request(task, length_tokens, tokenizer_dir, sources)
    what = f"{task} at {length_tokens}"
    draws = Draws(seed)
    budget = Budget(length_tokens, spec.tokens_to_generate, token_counter(tokenizer_dir), profile)
    family = _family(spec, draws, budget, samples, sources)
    size = find_size(family, draws, budget, what)
    drawn = [draw_fitting(family, draws, budget, size, index, what) for index in range(samples)]
    _assert_counts(drawn[0][0], budget.counter)
    return [
        RulerSample(index, draft.prompt, draft.answer_prefix, draft.outputs, tokens)
        for index, (draft, tokens) in enumerate(drawn)
    ]


def _family(spec: RulerTask, draws: Draws, budget: Budget, samples: int, sources: Sources) -> Family:
    if spec.family == "niah":
        words = haystack_words(sources.path("haystack")) if spec.source else ()
        return NeedleInHaystack(spec.needles, budget.length_tokens, words, budget.profile)
    if spec.family == "variable_tracking":
        return _variable_tracking(draws, budget)
    if spec.family == "common_words":
        return CommonWords(budget.length_tokens, draws.seed)
    if spec.family == "frequent_words":
        return FrequentWords(budget.length_tokens)
    found, documents = questions(spec.questions, sources.path(spec.questions))
    return DocumentQuestions(found, documents, samples, budget.profile)


def _variable_tracking(draws: Draws, budget: Budget) -> VariableTracking:
    alone = VariableTracking(None)
    bounded = replace(budget, length_tokens=DEMONSTRATION_TOKENS)
    size = find_demonstration_size(alone, draws, bounded)
    demonstration, _ = draw_fitting(alone, draws, bounded, size, 0, "the demonstration of vt")
    return VariableTracking(demonstration)


def _assert_counts(draft: Draft, counter: TokenCounter) -> None:
    if counter.count(draft.prompt) != counter.count_whole(draft.prompt):
        raise AssertionError("word-wise token counts differ from the tokenizer's on a RULER prompt")
