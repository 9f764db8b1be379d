"""Parameters that commands and flows share."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tokenweight.flat import Part
from tokenweight.recipes.frozen import Explained
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.schema import Backend, Execution

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
    """vllm: where it is installed (docs/vllm.md); it has no perplexity and no pmi"""
    tensor_parallel: int = Field(default=1, ge=1)
    """Number of GPUs that share one model, with backend vllm"""
