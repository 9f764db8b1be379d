"""Parameters that commands and flows share, with what people read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from tokenweight.flat import Part
from tokenweight.recipes.frozen import Frozen
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.schema import Backend, Execution, Scale

MOST_SEEDS = 100  # each is planned before the first runs
AnyModelScale = Literal["paper", "smoke"]
_EXPERIMENT = (
    "A table or figure of the paper, for example table-3, with its seeds table-3:3; paper: all of them; a YAML file of "
    "yours; RECIPE@BENCHMARKS"
)
ExperimentOption = Annotated[
    str, Field(description=f"{_EXPERIMENT}; the text of such a file; several with spaces between")
]
ExperimentsOption = Annotated[list[str], Field(description=f"{_EXPERIMENT}. Several are run in their order")]
ScaleOption = Annotated[
    str, Field(description="smoke: on a CPU in minutes; mini: one GPU; paper: 8 GPUs; or a scale of your experiment")
]
NamedScaleOption = Annotated[Scale, Field(description="smoke: on a CPU in minutes; mini: one GPU; paper: 8 GPUs")]
SeedsOption = Annotated[
    int | None,
    Field(
        ge=1,
        le=MOST_SEEDS,
        description="Runs of each recipe, with other training data each. Default: the experiment's own",
    ),
]
StoreOption = Annotated[Path, Field(description="Directory of the artifacts; finished stages are reused")]
OutOption = Annotated[Path, Field(description="Directory of the results: <out>/<scale>/<name>.md and so on")]
FiguresOption = Annotated[bool, Field(description="Draw the figures beside the table, which takes some seconds")]
ExecutionOption = Annotated[
    tuple[str, ...],
    Field(description="key=value of a field of Execution, for example nodes=2 (docs/launching.md); repeat for more"),
]
# How stages run: the fields of Execution that people change often; the others by ExecutionOption.
Choices = Annotated[
    dict[str, Any], Part(Execution, "launcher", "processes", "device", "slots_per_gpu", given_only=True)
]
EvaluationInputs = Annotated[
    Inputs, Part(Inputs, "corpus", "mmlu", "bbh", "longbench", "haystack", "squad", "hotpotqa", "settings")
]
FormatsOption = Annotated[
    str | None, Field(description="Comma-separated formats of md,tex,csv,json, for example tex,csv. Default: all")
]
StyleOption = Annotated[
    Literal["ours", "paper", "both"],
    Field(description="ours: measured values; paper: the paper's printed values; both: with their difference"),
]
JsonOption = Annotated[bool, Field(description="Print JSON")]

STORE = Path("store")
RESULTS = Path("results")


class RunOptions(Frozen):
    """Where a run of experiments works, and how far it goes."""

    model_config = ConfigDict(use_attribute_docstrings=True)  # which help and forms show

    store: StoreOption = STORE
    out: OutOption = RESULTS
    pool: str | None = None
    """Work pool of a Prefect server in which each model is a flow run. Default: all run in this run"""
    at_once: int = Field(default=4, ge=1, le=200)  # more queued runs starve a queue of Prefect's
    """Number of models that run in the pool at the same time"""
    seconds: float | None = Field(default=None, gt=0)
    """Seconds after which the run stops in good order, to be resumed. Default: it runs to its end"""
    records: Annotated[Path | None, BeforeValidator(lambda value: value or None)] = None  # a form sends empty text
    """Archive, .tar.xz, that the store's records are packed into every minute and at the end"""
    figures: FiguresOption = True


class ModelOptions(Frozen):
    """How models are evaluated as they are."""

    model_config = ConfigDict(use_attribute_docstrings=True)  # which help and forms show

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
    backend: Backend = "hf"
    """vllm: where it is installed (docs/evaluation.md); it has no perplexity and no pmi"""
    tensor_parallel: int = Field(default=1, ge=1)
    """Number of GPUs that share one model, with backend vllm"""
