"""Score functions by name (Section 3.1): what each says of a prediction, before postprocessing. Loads no torch.

A score function takes what its parameters name (:data:`GIVEN`) and returns fp32 [B, M], without gradient: its scores, or with
postprocessing `raw` the weights themselves. D = long_nll - short_nll is the negative conditional PMI (Appendix A).
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import runpy
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

GIVEN = (
    "long_nll",  # NLL with long context, fp32 [B, M], in nats
    "short_nll",  # NLL with short context; a score that does not name it needs no scorer
    "long_entropy",  # of the long model's prediction, fp32 [B, M], in nats
    "position",  # tokens of its own document before the predicted one, in the sequence: fp32 [B, M]
    "position_counts",  # how often training predicts a token at each position, from 0 on: fp32 [N]
    "gamma",  # weighting.gamma, where that is set
    "threshold",  # weighting.threshold, where that is set
    "shift_k",  # weighting.shift_k
)
ScoreName = str  # of SCORES, or FILE.py:FUNCTION
Function = TypeVar("Function", bound=Callable[..., Any])


class ScoreError(ValueError):
    """What a user's score function raised: which function, what, and its line."""


class Score(NamedTuple):
    """A score function, and the postprocessings that make sense of it."""

    function: Callable[..., Tensor]
    postprocessings: tuple[str, ...]
    own_first_window: bool  # where there is no shorter context, the short NLL is the long pass's own

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters)


SCORES: dict[str, Score] = {}


def weighting(
    name: str, *, postprocessings: tuple[str, ...] = ("dense", "sparse", "raw"), own_first_window: bool = False
) -> Callable[[Function], Function]:
    """Register a score function under a name, by which `Weighting` and so recipes and experiments know it.

    Raises ValueError for a name that is one of the paper's or unfit for a directory's, and for a parameter that is not in
    :data:`GIVEN` and has no default.
    """

    def register(function: Function) -> Function:
        known = SCORES.get(name)
        if not re.fullmatch(r"[A-Za-z0-9_]+", name) or (known and known.function.__module__ == __name__):
            raise ValueError(
                f"weighting {name!r}: is one of the paper's or not a name; choose another, of letters, digits and _"
            )
        SCORES[name] = _checked(Score(function, postprocessings, own_first_window), name)
        return function

    return register


def find_score(name: ScoreName) -> Score:
    """The score function of a name, or of FILE.py:FUNCTION, which executes the file. ValueError where there is none."""
    if ".py:" in name:
        return _in_file(pinned(name))
    if name not in SCORES:
        raise ValueError(f"is unknown; choose from {', '.join(SCORES)}, or write FILE.py:FUNCTION")
    return SCORES[name]


def pinned(name: ScoreName) -> ScoreName:
    """FILE.py:FUNCTION as /PATH/FILE.py:FUNCTION@SHA-256, which stays the same until a run has ended; another as it is."""
    place, in_file, rest = name.partition(".py:")
    if not in_file or "@" in rest:
        return name
    path = Path(f"{place}.py").expanduser().resolve()
    return f"{path}:{rest}@{hashlib.sha256(_read(path)).hexdigest()}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None


@cache
def _in_file(name: ScoreName) -> Score:
    """Of a pinned name: read once in each process."""
    place, _, rest = name.partition(".py:")
    path, (function_name, _, digest) = Path(f"{place}.py"), rest.partition("@")
    if hashlib.sha256(_read(path)).hexdigest() != digest:
        raise ValueError(f"{path}: has changed since the run was planned; run again")
    function = _names_in(path, digest).get(function_name)
    if not function_name.isascii() or not inspect.isfunction(function):
        raise ValueError(f"{path}: has no function {function_name!r}")
    registered = (score for score in SCORES.values() if score.function is function)
    return next(registered, None) or _checked(Score(function, ("dense", "sparse", "raw"), False), function_name)


@cache
def _names_in(path: Path, _digest: str) -> dict[str, Any]:
    try:
        with redirect_stdout(sys.stderr):  # ours may be JSON
            return runpy.run_path(str(path))
    except (Exception, SystemExit) as error:  # whatever the file does
        raise ValueError(f"{path}: {in_words(error, path)}") from error


def in_words(error: BaseException, path: Path) -> str:
    """Kind, message, and the line of the user's file, where that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{type(error).__name__}: {error}{f' (line {lines[-1]})' if lines else ''}"


def _checked(score: Score, name: str) -> Score:
    parameters = inspect.signature(score.function).parameters.values()
    if unknown := [one.name for one in parameters if one.name not in GIVEN and one.default is one.empty]:
        raise ValueError(f"{name}: takes {unknown[0]}, which is unknown; choose from {', '.join(GIVEN)}")
    return score


_SIZES = ("dense", "sparse")  # what is large or small, but no weight


@weighting("abs_pmi", postprocessings=_SIZES)
def abs_pmi(long_nll: Tensor, short_nll: Tensor) -> Tensor:
    """The paper's: |D| (Eq. 5)."""
    return (long_nll - short_nll).abs()


@weighting("ppmi", postprocessings=_SIZES)
def ppmi(long_nll: Tensor, short_nll: Tensor) -> Tensor:
    """max(-D, 0): tokens that the far context makes likelier (Section 5.3)."""
    return (-(long_nll - short_nll)).clamp_min(0)


@weighting("npmi", postprocessings=_SIZES)
def npmi(long_nll: Tensor, short_nll: Tensor) -> Tensor:
    """max(D, 0): tokens that the far context makes less likely (Section 5.3)."""
    return (long_nll - short_nll).clamp_min(0)


@weighting("sppmi", postprocessings=_SIZES)
def sppmi(long_nll: Tensor, short_nll: Tensor, shift_k: float = 2.0) -> Tensor:
    """max(-D - ln k, 0) (Section 5.3)."""
    return (-(long_nll - short_nll) - math.log(shift_k)).clamp_min(0)


@weighting("snpmi", postprocessings=_SIZES)
def snpmi(long_nll: Tensor, short_nll: Tensor, shift_k: float = 2.0) -> Tensor:
    """max(D - ln k, 0) (Section 5.3)."""
    return (long_nll - short_nll - math.log(shift_k)).clamp_min(0)


@weighting("excess", postprocessings=("sparse",))
def excess(long_nll: Tensor, short_nll: Tensor) -> Tensor:
    """D, which can be negative: rho-1, with the reference at the same context (Eq. 4)."""
    return long_nll - short_nll


@weighting("long_ce", own_first_window=True)
def long_ce(long_nll: Tensor, short_nll: Tensor, gamma: float = 5.0) -> Tensor:
    """min(exp(-D), gamma): LongCE's weight, by the cap acting before the exponential."""
    return (-(long_nll - short_nll)).clamp_max(math.log(gamma)).exp()


@weighting("focal")
def focal(long_nll: Tensor, gamma: float = 2.0) -> Tensor:
    """(1 - p_long)^gamma."""
    return (-(-long_nll).expm1()).clamp_min(0).pow(gamma)


@weighting("mile")
def mile(long_entropy: Tensor, gamma: float = 1.0) -> Tensor:
    """(1 + H)^gamma with H the entropy of the long model's prediction."""
    return (1 + long_entropy).pow(gamma)


@weighting("exact", postprocessings=("raw",))
def exact(position: Tensor, position_counts: Tensor, threshold: int, gamma: float = 1.0) -> Tensor:
    """1; for tokens with `threshold` tokens before them or more gamma more in the mean, each doubling an equal part: EXACT's."""

    def doubling(tokens: Tensor) -> Tensor:  # of the threshold, counted from 1; 0 before it
        return (tokens / threshold).frexp().exponent.clamp_min(0).long()

    places = doubling(position_counts.new_ones(len(position_counts)).cumsum(0) - 1)
    counts = ((places == places.unique()[:, None]) * position_counts).sum(dim=1)  # by doubling
    beyond = counts[1:]
    extra: Tensor = gamma * beyond.sum() / (beyond > 0).sum() / counts
    extra[0] = 0
    return 1 + extra[doubling(position)]
