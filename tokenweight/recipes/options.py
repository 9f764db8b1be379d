"""Parameters that commands and flows share."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from tokenweight.errors import UserError
from tokenweight.flat import Part
from tokenweight.recipes.frozen import Explained
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.recipe import one_line
from tokenweight.recipes.schema import Backend, Execution, ScoreName, Seed, Weighting

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
SHORT_SHARE = 4  # the window is a quarter of the sequence, 8192 of 32768 (Section 4, Models)


class RunOptions(Explained):
    """Where a run of experiments works, and how far it goes."""

    store: Path = STORE  # what is not described here is in options.toml, as for commands that have it alone
    out: Path = RESULTS
    pool: str | None = None
    """Work pool of a Prefect server in which each model is a flow run. Default: all run in this run"""
    at_once: int = Field(default=4, ge=1, le=200)  # more queued runs starve a queue of Prefect's
    """Number of models that run in the pool at the same time"""
    seconds: float | None = Field(default=None, gt=0)
    """Seconds after which the run stops in good order, to be resumed. Default: it runs to its end"""
    records: Annotated[Path | None, BeforeValidator(lambda value: value or None)] = None  # a form sends empty text
    """Archive, .tar.xz, that the store's records are packed into every minute and at the end"""
    figures: bool = True


class ModelOptions(Explained):
    """How models are evaluated as they are."""

    scale: AnyModelScale = "paper"
    """paper: the complete protocol; smoke: shipped miniatures"""
    revision: str | None = None
    """Revision of a hub id. Default: its main branch"""
    limit: int | None = Field(default=None, ge=1)
    """Largest number of samples of each task. Default: all"""
    context_tokens: int | None = Field(default=None, ge=2)
    """Longest input in tokens. Default: what the model's config.json says"""
    device: Literal["auto", "cpu", "cuda"] | None = None
    """Where models run. Default: cuda, at scale smoke auto"""
    processes: int | None = Field(default=None, ge=1)
    """Number of processes that share the evaluation. Default: one for each visible GPU"""
    batch_size: int | None = Field(default=None, ge=1)
    """Sequences of the longest input that are evaluated together. Default: what the GPU holds"""
    backend: Backend = "hf"
    """vllm: where it is installed (docs/vllm.md); it has no perplexity and no pmi. endpoint: see --endpoint"""
    endpoint: str | None = None
    """Server that answers for the model by OpenAI's protocol, for example http://127.0.0.1:8000/v1; of several models, URL#NAME"""
    tensor_parallel: int = Field(default=1, ge=1)
    """Number of GPUs that share one model, with backend vllm"""


class WeightingOptions(Explained):
    """How contexts are compared, and how weights come of it; None: the default that fits the model."""

    scorer: Path | None = None
    """Frozen scorer of the same vocabulary, a checkpoint directory. Default: the model itself"""
    long_tokens: int | None = Field(default=None, ge=2)
    """Tokens of a sequence. Default: what fits the context"""
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
    seed: Seed = 0
    """Seed that settles ties of sparse weights"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models run; auto: on a GPU where there is one"""

    def windows(self, long_tokens: int, scorer_context_tokens: int) -> tuple[int, int]:
        """Length and stride, by default in the paper's shares (Section 4, Datasets): 8192 and 6144 for 32768 tokens.

        A scorer of a shorter context gets windows of that.
        """
        short_tokens = self.short_tokens or max(2, min(long_tokens // SHORT_SHARE, scorer_context_tokens))
        return short_tokens, self.stride_tokens or max(1, 3 * short_tokens // 4)

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
            if error.errors()[0]["loc"] == ("score",):
                raise UserError(f"--score {self.score}: {error.errors()[0]['ctx']['error']}") from None
            raise UserError(
                f"--score, --postprocessing, --lambda, --kappa: {one_line(error)}; change one of them"
            ) from None
