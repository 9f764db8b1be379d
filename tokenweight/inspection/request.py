"""What a user asks of `inspect`, checked as far as it can be before a model is loaded."""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from tokenweight.corpus.token_texts import MOST_TOKENS, Tokens, place_of
from tokenweight.errors import UserError
from tokenweight.recipes.frozen import Explained
from tokenweight.recipes.recipe import one_line
from tokenweight.recipes.schema import ScoreName, Weighting

KAPPA_UNFROZEN, KAPPA_FROZEN = 0.2, 0.4  # Section 4, Weighting variants
MARGIN_TOKENS = 5  # on either side of what --find finds
SHORT_SHARE = 4  # the window is a quarter of the sequence, 8192 of 32768 (Section 4, Models)


class Options(Explained):
    """How to compare contexts, and which tokens the table shows; None: the default that fits the checkpoint."""

    scorer: Path | None = None
    """Checkpoint of a frozen scorer with the same vocabulary. Default: the checkpoint itself"""
    long_tokens: int | None = Field(default=None, ge=2)
    """Number of the text's tokens. Default: what fits the context"""
    short_tokens: int | None = Field(default=None, ge=2)
    """Length of the short context. Default: a quarter of the long one"""
    stride_tokens: int | None = Field(default=None, ge=1)
    """Tokens from one window to the next. Default: three quarters of the window"""
    score: ScoreName = "abs_pmi"
    """Score function (Section 3.1): abs_pmi, ppmi, npmi, sppmi, snpmi, excess, long_ce, focal, mile, or FILE.py:FUNCTION"""
    postprocessing: Literal["dense", "sparse", "raw", "uniform"] = "dense"
    """From scores to weights (Section 3.2)"""
    lambda_: float | None = None
    """With dense: share of uniform weights. Default: 0, the scores alone"""
    kappa: float | None = None
    """With sparse: share of the tokens kept. Default: 0.2, with --scorer 0.4"""
    span: str | None = None
    """START:END, the tokens of the LaTeX table. Default: around the largest weight"""
    find: str | None = None
    """In place of --span: the tokens around the first place of this text"""
    seed: int = Field(default=0, ge=0)
    """Seed that settles ties of sparse weights"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models run; auto: on a GPU where there is one"""

    @property
    def weighting(self) -> Weighting:
        """UserError where the options contradict each other. Dense without --lambda takes 0, which is what Table 1 colours."""
        lambda_, kappa = self.lambda_, self.kappa
        if self.postprocessing == "dense" and lambda_ is None:
            lambda_ = 0.0
        if self.postprocessing == "sparse" and kappa is None:
            kappa = KAPPA_FROZEN if self.scorer else KAPPA_UNFROZEN
        try:
            return Weighting.model_validate(
                {"score": self.score, "postprocessing": self.postprocessing, "lambda": lambda_, "kappa": kappa}
            )
        except ValidationError as error:
            raise UserError(
                f"--score, --postprocessing, --lambda, --kappa: {one_line(error)}; change one of them"
            ) from None


def chosen_span(tokens: Tokens, options: Options) -> range | None:
    """The tokens of --span, half-open, or around the first place of --find; None where neither is given."""
    n_tokens, text, find = len(tokens.ids), options.span, options.find
    if text is not None:
        if find is not None:
            raise UserError("--span and --find: both choose the table's tokens; give one of them")
        match = re.fullmatch(r"(\d+):(\d+)", text.strip())
        if not match or int(match[1]) >= int(match[2]):
            raise UserError(f"--span {text}: not START:END with START < END; write for example 120:133")
        span = range(int(match[1]), int(match[2]))
        if len(span) > MOST_TOKENS:
            raise UserError(f"--span {text}: {len(span)} tokens; a table holds at most {MOST_TOKENS}, take fewer")
        if span.stop > n_tokens:
            raise UserError(f"--span {text}: the text has tokens 0 to {n_tokens - 1}; lower it")
        return span
    if find is None:
        return None
    if (place := place_of(tokens.texts, find)) is None:
        raise UserError(f"--find {find!r}: not in the first {n_tokens} tokens of the text; look for another")
    first, last = place
    if last - first >= MOST_TOKENS - 2 * MARGIN_TOKENS:
        raise UserError(f"--find: the string has {last - first + 1} tokens; too many for a table, take a shorter one")
    return range(max(0, first - MARGIN_TOKENS), min(n_tokens, last + 1 + MARGIN_TOKENS))
