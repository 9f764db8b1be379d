"""What a user asks of `inspect`, checked as far as it can be before a model is loaded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from tokenweight.corpus.files import decode
from tokenweight.corpus.token_texts import MOST_TOKENS, Tokens, place_of
from tokenweight.errors import UserError
from tokenweight.recipes.recipe import one_line
from tokenweight.recipes.schema import ScoreName, Weighting

Postprocessing = Literal["dense", "sparse", "raw", "uniform"]
Device = Literal["auto", "cpu", "cuda"]
KAPPA_UNFROZEN, KAPPA_FROZEN = 0.2, 0.4  # Section 4, Weighting variants
MARGIN_TOKENS = 5  # on either side of what --find finds
SHORT_SHARE = 4  # the window is a quarter of the sequence, 8192 of 32768 (Section 4, Models)


@dataclass(frozen=True)
class Request:
    """A checkpoint, a text and how to compare contexts; None: the default that fits the checkpoint."""

    checkpoint: Path
    text: Path
    weighting: Weighting
    scorer: Path | None = None
    long_tokens: int | None = None
    short_tokens: int | None = None
    stride_tokens: int | None = None
    seed: int = 0
    device: Device = "auto"


def weighting_for(
    score: ScoreName, postprocessing: Postprocessing, lambda_: float | None, kappa: float | None, *, frozen: bool
) -> Weighting:
    """The weighting of the options; UserError where they contradict each other.

    Dense without --lambda takes 0: the normalised scores alone, which is what Table 1 colours. Sparse without --kappa
    takes the paper's for that scorer.
    """
    if postprocessing == "dense" and lambda_ is None:
        lambda_ = 0.0
    if postprocessing == "sparse" and kappa is None:
        kappa = KAPPA_FROZEN if frozen else KAPPA_UNFROZEN
    try:
        return Weighting.model_validate(
            {"score": score, "postprocessing": postprocessing, "lambda": lambda_, "kappa": kappa}
        )
    except ValidationError as error:
        raise UserError(
            f"--score, --postprocessing, --lambda, --kappa: {one_line(error)}; change one of them"
        ) from None


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, as a corpus would have it: line ends are newlines, a byte order mark goes."""
    if not path.is_file():
        raise UserError(f"TEXT {path}: {'is not a file' if path.exists() else 'does not exist'}; give a text file")
    try:
        text = decode(path, path.read_bytes())
    except OSError as error:
        raise UserError(f"TEXT {path}: cannot be read ({error.strerror}); give a text file that can") from None
    if not text:
        raise UserError(f"TEXT {path}: the file is empty; give one with text")
    return text


def check_directory(name: str, path: Path) -> None:
    """UserError unless `path`, given as `name`, is a directory."""
    if not path.is_dir():
        problem = "is not a directory" if path.exists() else "does not exist"
        raise UserError(f"{name} {path}: {problem}; give a checkpoint directory of transformers")


def default_windows(long_tokens: int, scorer_context_tokens: int) -> tuple[int, int]:
    """(short_tokens, stride_tokens) in the paper's shares: a quarter of the sequence, three quarters of the window.

    A scorer of a shorter context gets windows of that. 8192 and 6144 for 32768 tokens (Section 4, Datasets).
    """
    short_tokens = max(2, min(long_tokens // SHORT_SHARE, scorer_context_tokens))
    return short_tokens, default_stride(short_tokens)


def default_stride(short_tokens: int) -> int:
    """Three quarters of a window: every later prediction has at least a quarter of it as context."""
    return max(1, 3 * short_tokens // 4)


def parse_span(text: str) -> range:
    """START:END as half-open token indices; UserError for anything else, before the model is loaded."""
    match = re.fullmatch(r"(\d+):(\d+)", text.strip())
    if not match or int(match[1]) >= int(match[2]):
        raise UserError(f"--span {text}: not START:END with START < END; write for example 120:133")
    span = range(int(match[1]), int(match[2]))
    if len(span) > MOST_TOKENS:
        raise UserError(f"--span {text}: {len(span)} tokens; a table holds at most {MOST_TOKENS}, take fewer")
    return span


def chosen_span(tokens: Tokens, span: range | None, find: str | None) -> range | None:
    """The tokens of --span or around the first place of --find; None where neither is given."""
    n_tokens = len(tokens.ids)
    if span is not None:
        if span.stop > n_tokens:
            raise UserError(f"--span {span.start}:{span.stop}: the text has tokens 0 to {n_tokens - 1}; lower it")
        return span
    if find is None:
        return None
    if (place := place_of(tokens.texts, find)) is None:
        raise UserError(f"--find {find!r}: not in the first {n_tokens} tokens of the text; look for another")
    first, last = place
    if last - first >= MOST_TOKENS - 2 * MARGIN_TOKENS:
        raise UserError(f"--find: the string has {last - first + 1} tokens; too many for a table, take a shorter one")
    return range(max(0, first - MARGIN_TOKENS), min(n_tokens, last + 1 + MARGIN_TOKENS))
