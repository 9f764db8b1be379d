"""A weighting as values. Loads no torch."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator, model_validator

from tokenweight.weighting.scores import SCORES, ScoreError, ScoreName, find_score, pinned

# Postprocessings, and the setting that each needs.
_NEEDS = {"uniform": None, "dense": "lambda", "sparse": "kappa", "raw": None}


class Weighting(BaseModel):
    """Score function and postprocessing (Section 3): what weight each token's loss gets.

    `score` is a registered name (:mod:`.scores`) or FILE.py:FUNCTION, pinned to the file's contents. `uniform` ignores scores;
    `dense` needs `lambda` in [0, 1] (Eq. 8); `sparse` needs `kappa` in (0, 1]; `raw` takes the score itself as the weight,
    as LongCE, focal loss and MiLe do.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    score: ScoreName = "abs_pmi"
    postprocessing: Literal["uniform", "dense", "sparse", "raw"] = "uniform"
    lambda_: float | None = Field(default=None, alias="lambda", ge=0, le=1)
    kappa: float | None = Field(default=None, gt=0, le=1)
    shift_k: float = Field(default=2.0, gt=1)  # sppmi, snpmi: the shift is ln k (Section 5.3)
    gamma: PositiveFloat | None = (
        None  # long_ce (5), focal (2), mile (1), exact (1): their own cap, exponent, or extra weight
    )
    threshold: PositiveInt | None = Field(
        default=None, exclude_if=lambda tokens: tokens is None
    )  # exact; others have none

    @property
    def label(self) -> str:
        """The score's name, or its function's."""
        return self.score.rpartition(":")[2].partition("@")[0]

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the weights are computed from (:data:`.scores.GIVEN`)."""
        return () if self.postprocessing == "uniform" else find_score(self.score).inputs

    @property
    def numbers(self) -> dict[str, float | None]:
        """What a score function is given of the settings."""
        return {"shift_k": self.shift_k, "gamma": self.gamma, "threshold": self.threshold}

    @property
    def by_document(self) -> bool:
        """Whether weights follow a token's place in its document: then attention ends at the document's border, too."""
        return "position" in self.inputs

    @property
    def needs_short_nll(self) -> bool:
        """Whether the weights compare two contexts at all (uniform, focal and MiLe do not)."""
        return "short_nll" in self.inputs

    @property
    def own_first_window(self) -> bool:
        """Whether tokens without a shorter context count as if both contexts were the same, whoever scores (LongCE)."""
        return self.needs_short_nll and find_score(self.score).own_first_window

    @field_validator("score")
    @classmethod
    def _known(cls, score: str) -> str:
        find_score(score)
        return pinned(score)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name, value in {"lambda": self.lambda_, "kappa": self.kappa}.items():
            if (value is not None) != (is_needed := name == _NEEDS[self.postprocessing]):
                verb = "needs" if is_needed else "takes no"
                raise ValueError(f"postprocessing {self.postprocessing!r} {verb} {name}")
        if self.postprocessing not in ("uniform", *find_score(self.score).postprocessings):
            fitting = ", ".join(find_score(self.score).postprocessings)
            raise ValueError(f"score {self.label!r} works only with postprocessing {fitting}")
        if "threshold" in self.inputs and self.threshold is None:
            raise ValueError(f"score {self.label!r} needs threshold, in tokens")
        if "@" in self.score:
            self._try()
        return self

    def _try(self) -> None:
        """ValueError where the user's function gives no weights of a few numbers: before a model has read anything."""
        import torch

        from tokenweight.weighting.weights import token_weights

        nats = torch.linspace(1, 2, 16).view(2, 8)
        try:
            token_weights(nats, nats.flip(1), self, sequence_ids=[0, 1], seed=0, long_entropy=nats)
        except ScoreError:
            raise
        except Exception as error:  # whatever the function gives
            raise ValueError(f"score {self.score.partition('@')[0]}: {error}") from error


def used_settings(postprocessing: str, score: ScoreName) -> set[str]:
    """What a weighting reads of its settings, besides these two. ValueError for a score that is unknown."""
    if postprocessing == "uniform":
        return set()
    return {"score", *find_score(score).inputs, *filter(None, [_NEEDS.get(postprocessing)])}


def users(setting: str) -> str:
    """Which postprocessings or scores read a setting that not all do, in words; "" for any other."""
    scores = [name for name, score in SCORES.items() if setting in score.inputs and setting in Weighting.model_fields]
    kinds = [kind for kind, needed in _NEEDS.items() if setting == needed or (setting == "score" and kind != "uniform")]
    return f"score {', '.join(scores)}" if scores else f"postprocessing {', '.join(kinds)}" if kinds else ""
