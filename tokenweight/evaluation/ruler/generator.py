"""Generate RULER samples: any of the 13 tasks at any length that holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.ruler.families import FAMILIES
from tokenweight.evaluation.ruler.sizing import Draws, draw_fitting, find_size
from tokenweight.evaluation.ruler.sources import Sources
from tokenweight.evaluation.ruler.tasks import Profile, ruler_task
from tokenweight.evaluation.tokens import check_tokenizer, token_counter

SHORTEST_TOKENS = 512


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

    `length` = BOS + prompt + tokens to generate (in profile `official-2024` as that program counts it). The same
    arguments give the same samples in any order, process and hash seed. Mistakes are reported before anything is drawn.

    Raises:
        UserError: unknown task, no tokenizer, a source that is missing or cannot be read, or a length that cannot hold
            the task.
    """
    sources, spec = sources or Sources(), ruler_task(task)
    if length_tokens < SHORTEST_TOKENS:
        raise UserError(f"ruler.lengths_tokens: {length_tokens} is too short; use at least {SHORTEST_TOKENS}")
    check_tokenizer(tokenizer_dir)
    sources.files(spec)
    counter, what = token_counter(tokenizer_dir), f"{task} at {length_tokens}"
    family = FAMILIES[spec.family](spec, length_tokens, counter, Draws(seed), profile)
    family.open(samples, sources)
    size = find_size(family, what)
    drawn = [draw_fitting(family, size, index, what) for index in range(samples)]
    first = drawn[0][0].prompt
    if counter.count(first) != counter.count_whole(first):
        raise AssertionError("word-wise token counts differ from the tokenizer's on a RULER prompt")
    return [
        {
            "index": index,
            "input": draft.prompt.removesuffix(draft.answer_prefix),
            "answer_prefix": draft.answer_prefix,
            "outputs": draft.outputs,
            "length": tokens,
        }
        for index, (draft, tokens) in enumerate(drawn)
    ]
