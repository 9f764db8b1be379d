"""Parameters that commands and flows share; options.toml has what people read of them."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from tokenweight.errors import UserError, choose
from tokenweight.flat import Part
from tokenweight.recipes.frozen import Frozen
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.recipe import one_line
from tokenweight.recipes.schema import Backend, Execution, ScoreName, Seed, Weighting
from tokenweight.weighting.scores import SCORES

MOST_SEEDS = 100  # each is planned before the first runs
AnyModelScale = Literal["paper", "smoke"]
Seeds = Annotated[int, Field(ge=1, le=MOST_SEEDS)]
# How stages run: the fields of Execution that people change often; the others by the option `execution`.
Choices = Annotated[
    dict[str, Any], Part(Execution, "launcher", "processes", "device", "slots_per_gpu", given_only=True)
]
_OF_EVALUATION = (name for name in Inputs.model_fields if name not in ("base", "tokenizer"))
EvaluationInputs = Annotated[Inputs, Part(Inputs, *_OF_EVALUATION)]

STORE = Path("store")
RESULTS = Path("results")
KAPPA_UNFROZEN, KAPPA_FROZEN = 0.2, 0.4  # Section 4, Weighting variants
_OWN = "FILE.py:FUNCTION"
SHORT_SHARE = 4  # the window is a quarter of the sequence, 8192 of 32768 (Section 4, Models)


class RunOptions(Frozen):
    """Where a run of experiments works, and how far it goes."""

    store: Path = STORE
    out: Path = RESULTS
    pool: str | None = None
    at_once: int = Field(default=4, ge=1, le=200)  # more queued runs starve a queue of Prefect's
    seconds: float | None = Field(default=None, gt=0)
    records: Annotated[Path | None, BeforeValidator(lambda value: value or None)] = None  # a form sends empty text
    figures: bool = True


class ModelOptions(Frozen):
    """How models are evaluated as they are."""

    scale: AnyModelScale = "paper"
    revision: str | None = None
    limit: int | None = Field(default=None, ge=1)
    context_tokens: int | None = Field(default=None, ge=2)
    device: Literal["auto", "cpu", "cuda"] | None = None
    processes: int | None = Field(default=None, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    backend: Backend = "hf"
    endpoint: str | None = None
    tensor_parallel: int = Field(default=1, ge=1)


class WeightingOptions(Frozen):
    """How contexts are compared, and how weights come of it; None: the default that fits the model."""

    scorer: Path | None = None
    long_tokens: int | None = Field(default=None, ge=2)
    short_tokens: int | None = Field(default=None, ge=2)
    stride_tokens: int | None = Field(default=None, ge=1)
    score: ScoreName = "abs_pmi"
    postprocessing: Literal["dense", "sparse", "raw", "uniform"] = "dense"
    lambda_: float | None = None
    kappa: float | None = None
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def windows(self, long_tokens: int, scorer_context_tokens: int) -> tuple[int, int]:
        """Length and stride, by default in the paper's shares (Section 4, Datasets): 8192 and 6144 for 32768 tokens.

        A scorer of a shorter context gets windows of that.
        """
        short_tokens = self.short_tokens or max(2, min(long_tokens // SHORT_SHARE, scorer_context_tokens))
        return short_tokens, self.stride_tokens or max(1, 3 * short_tokens // 4)

    @property
    def weighting(self) -> Weighting:
        """UserError where the options contradict each other. Dense without --lambda takes 0, which is what Table 1 colours."""
        offered = [
            name for name, score in SCORES.items() if "threshold" not in score.inputs
        ]  # which a recipe alone has
        if ".py:" not in self.score and self.score not in offered:
            raise UserError(f"--score {self.score}: is not offered here{choose(self.score, (*offered, _OWN))}")
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
            raise UserError(f"--{one_line(error)}; change it") from None  # all of them begin with a setting
