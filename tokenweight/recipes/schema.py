"""What a recipe is made of: frozen models that hold every value that changes a result.

Values that change only how a result is computed (devices, launchers, micro-batches) are
in :class:`Execution` and never enter a fingerprint (architecture: identity and reuse).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PositiveFloat, PositiveInt, TypeAdapter, model_validator

from tokenweight.recipes.sources import PHI_ROTATED_SHARE as PHI_ROTATED_SHARE
from tokenweight.recipes.sources import Architecture as Architecture
from tokenweight.recipes.sources import Base as Base
from tokenweight.recipes.sources import Chunking as Chunking
from tokenweight.recipes.sources import Corpus as Corpus
from tokenweight.recipes.sources import EchoCorpus as EchoCorpus
from tokenweight.recipes.sources import FilesCorpus as FilesCorpus
from tokenweight.recipes.sources import Frozen as Frozen
from tokenweight.recipes.sources import HubBase as HubBase
from tokenweight.recipes.sources import HubCorpus as HubCorpus
from tokenweight.recipes.sources import LocalBase as LocalBase
from tokenweight.recipes.sources import MixtureCorpus as MixtureCorpus
from tokenweight.recipes.sources import MixturePart as MixturePart
from tokenweight.recipes.sources import NovelCorpus as NovelCorpus
from tokenweight.recipes.sources import PretrainBase as PretrainBase
from tokenweight.recipes.sources import RandomBase as RandomBase
from tokenweight.recipes.sources import ShippedBase as ShippedBase
from tokenweight.recipes.sources import Source as Source
from tokenweight.recipes.sources import Training as Training
from tokenweight.weighting.settings import ScoreName as ScoreName
from tokenweight.weighting.settings import Weighting as Weighting

Scale = Literal["smoke", "mini", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Parity = Literal["paper", "authors"]
Checkpointing = Literal["none", "full", "keep_attention", "keep_projections"]  # of activations


# --- The method --------------------------------------------------------------------------------


class Scorer(Frozen):
    """The short-context model theta' (Section 3.1, choice of base model) and its windows.

    frozen: `model`, or where that is None the recipe's own base before extension, scored once beforehand.
    unfrozen: the model in training itself, on short windows. With `precision` "fp8" the linear layers of its blocks
    multiply in float8 while it scores (not while it trains); a run is refused where that changes which tokens score
    highest (tokenweight.fp8, an optional room).
    """

    kind: Literal["frozen", "unfrozen"]
    short_tokens: PositiveInt
    stride_tokens: PositiveInt
    model: Base | None = None
    precision: Literal["training", "fp8"] = "training"  # "training": the training's own

    @model_validator(mode="after")
    def _windows(self) -> Scorer:
        if self.stride_tokens >= self.short_tokens:
            raise ValueError(
                f"stride_tokens ({self.stride_tokens}) must be smaller than short_tokens ({self.short_tokens})"
            )
        if self.kind == "unfrozen" and self.model is not None:
            raise ValueError("an unfrozen scorer is the model itself: leave `model` out")
        if self.kind == "frozen" and self.precision != "training":
            raise ValueError("precision 'fp8' is for unfrozen scorers: a frozen one scores once, leave it out")
        return self


class Extension(Frozen):
    """Context extension by RoPE (Section 4, Models): abf sets `rope_theta`; the others follow from the factor."""

    method: Literal["abf", "ntk", "linear", "yarn"] = "abf"
    long_tokens: PositiveInt
    rope_theta: PositiveFloat | None = None

    @model_validator(mode="after")
    def _theta(self) -> Extension:
        if (self.rope_theta is not None) != (self.method == "abf"):
            raise ValueError("rope_theta belongs to method 'abf' and only to it")
        return self


# --- Evaluation --------------------------------------------------------------------------------


class Ruler(Frozen):
    """RULER: 13 tasks at each length (Appendix C)."""

    lengths_tokens: tuple[PositiveInt, ...]
    samples: PositiveInt = 500
    seed: int = 42
    haystack: str | None = None  # .txt directory or JSON with `text`; None: the shipped text
    squad: str | None = None  # SQuAD dev-v2.0 JSON; None: the shipped questions
    hotpotqa: str | None = None  # HotpotQA dev-distractor JSON; None: the shipped questions
    profile: Literal["paper"] = "paper"  # the rules that prompts are made by (docs/ruler.md): part of their identity


class LongBench(Frozen):
    """LongBench, the 16 English tasks (Section 4, Evaluation)."""

    data: str | None = None  # directory of official JSONL; "hub"; None: the shipped tasks
    split_tokens: PositiveInt = 8192  # the border between "<=8k" and ">8k"
    length_unit: Literal["tokens", "words"] = "tokens"
    first_line: Literal["lceg", "thudm"] = "lceg"
    max_new_tokens: PositiveInt | None = None  # a cap on the tasks' own lengths; None: as they are
    samples: PositiveInt | None = None  # per task; None: all


class Mmlu(Frozen):
    """MMLU, 57 subjects, lm-eval's own tasks."""

    data: str | None = None  # directory with dev/ and test/; "hub"; None: the shipped questions
    fewshot: int = Field(default=5, ge=0, le=5)
    samples: PositiveInt | None = None  # per subject; None: all


class Bbh(Frozen):
    """BIG-Bench-Hard, 27 tasks, lm-eval's bbh_cot_fewshot (three exemplars exist; the paper says five)."""

    data: str | None = None  # directory of official JSON; "hub"; None: the shipped questions
    fewshot: int = Field(default=3, ge=0, le=3)
    samples: PositiveInt | None = None  # per task; None: all
    max_new_tokens: PositiveInt = 1024


class Perplexity(Frozen):
    """Perplexity over the first N tokens of validation documents (Table 9)."""

    lengths_tokens: tuple[PositiveInt, ...]
    corpus: Corpus
    documents: PositiveInt | None = None


class Pmi(Frozen):
    """Distribution of the PMI (Figure 3) over the whole validation documents of `perplexity.corpus`.

    Chunks are as long as the model's context; windows are those of training. `scorer` unfrozen: the model itself reads
    the windows; frozen: `scorer_model`, or where that is None the recipe's own base before extension.
    """

    short_tokens: PositiveInt
    stride_tokens: PositiveInt
    shift_k: float = Field(default=2.0, gt=1)  # of sppmi and snpmi, whose zero scores are counted
    scorer: Literal["unfrozen", "frozen"] = "unfrozen"
    scorer_model: Base | None = None
    documents: PositiveInt | None = None  # None: all

    @model_validator(mode="after")
    def _windows(self) -> Pmi:
        if self.stride_tokens >= self.short_tokens:
            raise ValueError(
                f"stride_tokens ({self.stride_tokens}) must be smaller than short_tokens ({self.short_tokens})"
            )
        if self.scorer == "unfrozen" and self.scorer_model is not None:
            raise ValueError("an unfrozen scorer is the model itself: leave `scorer_model` out")
        return self


class Phrase(Frozen):
    """Losses of each token of one phrase (Table 1), with long context and on the windows of `pmi`.

    `file` None: a validation document of `perplexity.corpus`. `words` None: chosen by rule, round a fact from far back
    in the synthetic novel, else round the largest difference of losses. `scorer` frozen: the recipe's own base before
    extension reads the windows; unfrozen: the model itself.
    """

    file: str | None = None  # UTF-8 text; its content is its identity
    words: str | None = Field(default=None, min_length=1)  # the phrase; its first place in the text counts
    scorer: Literal["unfrozen", "frozen"] = "frozen"


class Planted(Frozen):
    """The synthetic novel as a judge of scores and models (not in the paper): unseen sequences of known kinds.

    They are as long as the model's context; the recipe's base, un-extended, scores them on these windows.
    """

    corpus: NovelCorpus
    sequences: PositiveInt
    short_tokens: PositiveInt
    stride_tokens: PositiveInt
    precision: Literal["fp32", "bf16"] = "bf16"  # of the scorer


Backend = Literal["hf", "vllm"]
Precision = Literal["fp32", "bf16"]


class Evaluation(Frozen):
    """What every recipe of a scale is measured on, and by which backend (which may change results in rounding)."""

    backend: Backend = "hf"
    precision: Precision  # of weights and activations, on whatever device
    ruler: Ruler
    longbench: LongBench
    mmlu: Mmlu
    bbh: Bbh
    perplexity: Perplexity
    pmi: Pmi
    phrase: Phrase
    planted: Planted

    @classmethod
    def part(cls, values: dict[str, Any]) -> Evaluation:
        """From the dump of one that holds some benchmarks alone; reading another is an AttributeError."""
        types: dict[str, Any] = {name: info.annotation for name, info in cls.model_fields.items()}
        known = {name: TypeAdapter(types[name]).validate_python(value) for name, value in values.items()}
        return cls.model_construct(**known)


# --- Recipe and execution ----------------------------------------------------------------------


class Recipe(Frozen):
    """One model's full description: base, extension, data, weighting, training, evaluation.

    `extension` None keeps the base's context; `training` None evaluates without continued pre-training.
    `parity` "authors" follows the authors' public code where it leaves the paper's text and could matter: chunks
    (a token lost between two), NLLs (through bf16), the unfrozen first window (one column more), the choice of the
    top kappa (count, ties, filling), and the frozen scorer's RoPE type. reports/divergences.md has the table, the optional
    room tokenweight.authors_compat the code.
    """

    name: str  # e.g. table-3/frozen-sparse
    scale: Scale
    base: Base
    extension: Extension | None = None
    corpus: Corpus | None = None
    chunking: Chunking | None = None
    weighting: Weighting = Weighting()
    scorer: Scorer | None = None
    training: Training | None = None
    evaluation: Evaluation
    seed: int = 0
    parity: Parity = "paper"

    @property
    def context_tokens(self) -> int:
        """Longest input of the finished model, in tokens."""
        return self.extension.long_tokens if self.extension else self.base.context_tokens

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.training and not (self.corpus and self.chunking):
            raise ValueError("training needs corpus and chunking")
        if (self.weighting.postprocessing != "uniform") != (self.scorer is not None):
            raise ValueError("a scorer is needed exactly where weighting is not uniform")
        if self.scorer and self.chunking and self.scorer.short_tokens > self.chunking.long_tokens:
            raise ValueError(
                f"scorer.short_tokens ({self.scorer.short_tokens}) exceeds chunking.long_tokens "
                f"({self.chunking.long_tokens})"
            )
        if self.chunking and self.chunking.long_tokens > self.context_tokens:
            raise ValueError(
                f"chunking.long_tokens ({self.chunking.long_tokens}) exceeds the model's context ({self.context_tokens})"
            )
        return self


class Execution(Frozen):
    """How stages run here: never part of a fingerprint. A user's choices among these fields replace the scale's own."""

    launcher: Literal["inline", "torchrun", "srun"] = Field(
        default="inline", description="How training runs: in this process, by torchrun on one node, by srun on several"
    )
    processes: int = Field(
        default=1, ge=1, description="Number of training processes on all nodes together, one for each GPU"
    )
    nodes: int = Field(
        default=1, ge=1, description="Number of nodes, each with the same number of processes; with srun"
    )
    srun_options: str | None = Field(
        default=None, description="With srun: its options, for example --partition=gpu --gres=gpu:8"
    )
    deadline_seconds: float | None = Field(
        default=None, gt=0, description="Seconds after which a stage is ended; its checkpoint stays"
    )
    sequence_parallel: int = Field(
        default=1, ge=1, description="Number of processes that share each training sequence, in equal parts"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Where models run; auto: on a GPU where there is one"
    )
    gpus: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        default=1,
        description="Number of GPUs that a run takes, more where a stage needs them; all: as many as are free",
    )
    slots: int | None = Field(
        default=None, ge=1, description="Number of stages at a time on a CPU; None: two where there are two cores"
    )
    slots_per_gpu: int = Field(
        default=1, ge=1, description="Number of worker processes that share each GPU, for small models"
    )
    micro_batch_sequences: int = Field(
        default=1, ge=1, description="Sequences of one forward pass of a training process"
    )
    eval_batch_sequences: int | None = Field(
        default=None,
        ge=1,
        description="Sequences of the longest input that are evaluated together; None: what the GPU holds, 8 on a CPU",
    )
    save_every_steps: int = Field(default=40, ge=1, description="Training steps from one checkpoint to the next")
    deepspeed_stage: Literal[0, 2, 3] = Field(default=0, description="Level of ZeRO; 0: none")
    convert_checkpoints: bool = Field(
        default=False,
        description="Resume from the checkpoint of an interrupted run that was split otherwise, equal up to rounding",
    )
    checkpointing: Checkpointing = Field(
        default="none", description="Which activations are computed again in the backward pass, to save memory"
    )
    fused: bool = Field(default=False, description="Compile the elementwise parts of Llama layers")
    report_to: tuple[Literal["tensorboard", "wandb"], ...] = Field(
        default=("tensorboard",), description="Where training metrics go beside metrics.jsonl"
    )
    tensor_parallel: int = Field(
        default=1, ge=1, description="Number of GPUs that share one model in evaluation, with backend vllm"
    )

    @property
    def processes_per_node(self) -> int:
        """Processes on each node."""
        return self.processes // self.nodes

    @property
    def sequences_per_pass(self) -> int:
        """Different sequences that all processes together train on in one forward pass."""
        return self.processes // self.sequence_parallel * self.micro_batch_sequences
