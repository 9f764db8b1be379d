"""A weighting as values. Loads no torch."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

ScoreName = Literal["abs_pmi", "ppmi", "npmi", "sppmi", "snpmi", "excess", "long_ce", "focal", "mile"]
NEED_SHORT_NLL: tuple[ScoreName, ...] = ("abs_pmi", "ppmi", "npmi", "sppmi", "snpmi", "excess", "long_ce")


class Weighting(BaseModel):
    """Score function and postprocessing (Section 3): what weight each token's loss gets.

    `uniform` ignores scores; `dense` needs `lambda` in [0, 1] (Eq. 8); `sparse` needs `kappa` in (0, 1]; `raw` takes
    the score itself as the weight, as LongCE, focal loss and MiLe do.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    score: ScoreName = "abs_pmi"
    postprocessing: Literal["uniform", "dense", "sparse", "raw"] = "uniform"
    lambda_: float | None = Field(default=None, alias="lambda", ge=0, le=1)
    kappa: float | None = Field(default=None, gt=0, le=1)
    shift_k: float = Field(default=2.0, gt=1)  # sppmi, snpmi: the shift is ln k (Section 5.3)
    gamma: PositiveFloat | None = None  # long_ce (5), focal (2), mile (1): the baselines' own exponent or cap

    @property
    def needs_short_nll(self) -> bool:
        """Whether the weights compare two contexts at all (uniform, focal and MiLe do not)."""
        return self.postprocessing != "uniform" and self.score in NEED_SHORT_NLL

    @model_validator(mode="after")
    def _complete(self) -> Self:
        wanted = {"uniform": (), "dense": ("lambda",), "sparse": ("kappa",), "raw": ()}[self.postprocessing]
        given = {"lambda": self.lambda_, "kappa": self.kappa}
        for name, value in given.items():
            if (value is not None) != (name in wanted):
                verb = "needs" if name in wanted else "takes no"
                raise ValueError(f"postprocessing {self.postprocessing!r} {verb} {name}")
        if self.postprocessing == "raw" and self.score not in ("long_ce", "focal", "mile"):
            raise ValueError(f"postprocessing 'raw' is for long_ce, focal and mile; {self.score!r} is not a weight")
        if self.postprocessing == "dense" and self.score == "excess":
            raise ValueError("score 'excess' can be negative: use it with postprocessing 'sparse'")
        return self
