"""What a recipe is made of: frozen models of every value that changes a result; :class:`Execution` has those that do not."""

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, PositiveFloat, model_validator

from tokenweight.recipes.corpora import MOST
from tokenweight.recipes.corpora import Corpus as Corpus
from tokenweight.recipes.corpora import Count as Count
from tokenweight.recipes.corpora import EchoCorpus as EchoCorpus
from tokenweight.recipes.corpora import FilesCorpus as FilesCorpus
from tokenweight.recipes.corpora import HubCorpus as HubCorpus
from tokenweight.recipes.corpora import MixtureCorpus as MixtureCorpus
from tokenweight.recipes.corpora import MixturePart as MixturePart
from tokenweight.recipes.corpora import NovelCorpus as NovelCorpus
from tokenweight.recipes.corpora import Seed as Seed
from tokenweight.recipes.frozen import Frozen
from tokenweight.weighting.scores import ScoreName as ScoreName
from tokenweight.weighting.settings import Weighting as Weighting

Scale = Literal["smoke", "mini", "mini-31m", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Parity = Literal["paper", "authors"]
Backend = Literal["hf", "vllm", "endpoint"]
Precision = Literal["fp32", "bf16"]
Checkpointing = Literal["none", "full", "keep_attention", "keep_projections"]  # of activations
AtLeastOne = Annotated[int, Field(ge=1)]
Lengths = Annotated[tuple[Count, ...], Field(min_length=1)]  # in tokens
PHI_ROTATED_SHARE = 0.4  # of a head's dimensions, as in Phi-2's configuration: 32 of 80


class Chunking(Frozen):
    """How documents become training sequences (Section 4, Datasets).

    `read` "enough": LCDE reads of a data set of the hub only its first documents, until they have `long_document_factor`
    times the tokens that are drawn: enough to draw no document twice. The rest is taken to have the same domains and
    lengths, so the data set must be shuffled, as SlimPajama is. Directories, sorted by domain, are read completely.
    """

    long_tokens: Count
    mixture: Literal["per_document", "lcde", "as_is"] = "per_document"  # as_is: rows that are token ids already
    long_document_tokens: Count = 8192  # LCDE: longer documents are upsampled
    long_document_factor: Count = 5  # LCDE: how many times as often they are drawn (5 or 10 in Fu et al.'s code)
    sequences: Count | None = None  # stop after so many; None keeps all
    read: Literal["all", "enough"] = Field(default="all", exclude_if=lambda read: read == "all")
    seed: Seed = 0

    @model_validator(mode="after")
    def _enough_for_something(self) -> Self:
        if self.read == "enough" and (self.mixture != "lcde" or self.sequences is None):
            raise ValueError(
                "read 'enough' needs mixture 'lcde' and a number of sequences; give both, or set it to 'all'"
            )
        return self


class Architecture(Frozen):
    """A Llama or Phi of our own (transformers' configuration), for models that the pipeline trains itself."""

    family: Literal["llama", "phi"] = "llama"
    hidden_size: Count
    intermediate_size: Count
    layers: Count
    heads: Count
    kv_heads: Count
    rope_theta: PositiveFloat = 10_000.0
    tie_embeddings: bool = True

    @model_validator(mode="after")
    def _rotated(self) -> Self:
        if self.family == "phi" and int(PHI_ROTATED_SHARE * self.hidden_size / self.heads) % 2:
            raise ValueError(
                f"hidden_size {self.hidden_size} with {self.heads} heads: a Phi rotates {PHI_ROTATED_SHARE} of a head, "
                "which must be even; take heads of 80, as Phi-2's"
            )
        return self


class Training(Frozen):
    """The optimisation of Appendix B (or of a pre-training run); schedule: linear warm-up, then constant."""

    steps: Count
    sequences_per_step: Count
    learning_rate: PositiveFloat
    warmup_steps: int = Field(ge=0, le=MOST)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: PositiveFloat = 1e-8
    weight_decay: float = Field(default=0.01, ge=0)
    gradient_clip: PositiveFloat = 1.0
    precision: Precision = "bf16"
    final_learning_rate_share: float = Field(default=1.0, ge=0, le=1)  # <1: linear decay to this share


def _moves(training: Training) -> Training:
    if training.steps == 1 and training.warmup_steps:
        raise ValueError("steps 1 trains nothing, as a warm-up begins at rate 0; take 2, or warmup_steps 0")
    return training


Moving = Annotated[Training, AfterValidator(_moves)]  # with a step whose learning rate is not 0


class HubBase(Frozen):
    """A causal language model of the hub at a pinned revision."""

    kind: Literal["hub"] = "hub"
    repo_id: str
    revision: str
    context_tokens: Count


class ShippedBase(Frozen):
    """The tiny Llama in tokenweight/assets, trained on the synthetic novel by scripts/make_smoke_base.py."""

    kind: Literal["shipped"] = "shipped"
    context_tokens: Count = 1024


class LocalBase(Frozen):
    """A checkpoint directory that transformers can load; its content is its identity."""

    kind: Literal["local"] = "local"
    path: str
    context_tokens: Count


class PretrainBase(Frozen):
    """A base trained by the pipeline itself (stage `pretrain`) on short sequences of a corpus."""

    kind: Literal["pretrain"] = "pretrain"
    tokenizer: str | None = None  # directory with tokenizer.json; None: the shipped tokenizer
    architecture: Architecture
    corpus: Corpus
    context_tokens: Count
    training: Moving
    seed: Seed = 0


class RandomBase(Frozen):
    """Random weights in a real configuration, for benchmarks; drawn where the model is loaded: under ZeRO-3 never whole."""

    kind: Literal["random"] = "random"
    config: str  # llama3-8b, llama3.2-1b, phi-2, or a config.json of transformers; its content is its identity
    layers: Count | None = None  # None: as many as the configuration has
    tokenizer: str | None = None  # directory with tokenizer.json; None: the shipped tokenizer
    context_tokens: Count
    seed: Seed = 0


Base = Annotated[HubBase | ShippedBase | LocalBase | PretrainBase | RandomBase, Field(discriminator="kind")]


def check_stride(short_tokens: int, stride_tokens: int) -> None:
    """Raise ValueError unless windows overlap."""
    if stride_tokens >= short_tokens:
        raise ValueError(f"stride_tokens ({stride_tokens}) must be smaller than short_tokens ({short_tokens})")


class Scorer(Frozen):
    """The short-context model theta' (Section 3.1, choice of base model) and its windows.

    frozen: `model`, or where that is None the recipe's own base before extension, scored once beforehand.
    unfrozen: the model in training itself, on short windows; with `precision` "fp8" by float8 products (tokenweight.fp8).
    """

    kind: Literal["frozen", "unfrozen"]
    short_tokens: Count
    stride_tokens: Count
    model: Base | None = None
    precision: Literal["training", "fp8"] = "training"  # "training": the training's own

    @model_validator(mode="after")
    def _windows(self) -> Self:
        check_stride(self.short_tokens, self.stride_tokens)
        if self.kind == "unfrozen" and self.model is not None:
            raise ValueError("an unfrozen scorer is the model itself: leave `model` out")
        if self.kind == "frozen" and self.precision != "training":
            raise ValueError("precision 'fp8' is for unfrozen scorers: a frozen one scores once, leave it out")
        return self


class Extension(Frozen):
    """Context extension by RoPE (Section 4, Models): adjusted base frequency (ABF), another `rope_theta`."""

    method: Literal["abf"] = "abf"
    long_tokens: Count
    rope_theta: PositiveFloat


class Ruler(Frozen):
    """RULER: 13 tasks at each length (Appendix C)."""

    lengths_tokens: Lengths
    samples: Count = 500
    seed: Seed = 42
    haystack: str | None = None  # .txt directory or JSON with `text`; None: the shipped text
    squad: str | None = None  # SQuAD dev-v2.0 JSON; None: the shipped questions
    hotpotqa: str | None = None  # HotpotQA dev-distractor JSON; None: the shipped questions
    profile: Literal["paper", "paper-wonderwords-2.2.0"] = "paper"  # rules of prompts (docs/ruler.md)


class LongBench(Frozen):
    """LongBench, the 16 English tasks (Section 4, Evaluation)."""

    data: str | None = None  # directory of official JSONL; "hub"; None: the shipped tasks
    split_tokens: Count = 8192  # the border between "<=8k" and ">8k"
    length_unit: Literal["tokens", "words"] = "tokens"
    first_line: Literal["lceg", "thudm"] = "lceg"
    max_new_tokens: Count | None = None  # a cap on the tasks' own lengths; None: as they are
    samples: Count | None = None  # per task; None: all


class Mmlu(Frozen):
    """MMLU, 57 subjects, lm-eval's own tasks."""

    data: str | None = None  # directory with dev/ and test/; "hub"; None: the shipped questions
    fewshot: int = Field(default=5, ge=0, le=5)
    samples: Count | None = None  # per subject; None: all


class Bbh(Frozen):
    """BIG-Bench-Hard, 27 tasks, lm-eval's bbh_cot_fewshot (three exemplars exist; the paper says five)."""

    data: str | None = None  # directory of official JSON; "hub"; None: the shipped questions
    fewshot: int = Field(default=3, ge=0, le=3)
    samples: Count | None = None  # per task; None: all
    max_new_tokens: Count = 1024


class Perplexity(Frozen):
    """Perplexity over the first N tokens of validation documents (Table 9)."""

    # Of one token none is predicted.
    lengths_tokens: Annotated[tuple[Annotated[Count, Field(ge=2)], ...], Field(min_length=1)]
    corpus: Corpus
    documents: Count | None = None


class Pmi(Frozen):
    """Distribution of the PMI (Figure 3) over the whole validation documents of `perplexity.corpus`.

    Chunks are as long as the model's context; windows are those of training. `scorer` unfrozen: the model itself reads
    them; frozen: `scorer_model`, or where that is None the recipe's own base before extension.
    """

    short_tokens: Count
    stride_tokens: Count
    shift_k: float = Field(default=2.0, gt=1)  # of sppmi and snpmi, whose zero scores are counted
    scorer: Literal["unfrozen", "frozen"] = "unfrozen"
    scorer_model: Base | None = None
    documents: Count | None = None  # None: all

    @model_validator(mode="after")
    def _windows(self) -> Self:
        check_stride(self.short_tokens, self.stride_tokens)
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
    """The synthetic novel as a judge (not in the paper): unseen sequences, which the base scores on these windows."""

    corpus: NovelCorpus
    sequences: Count
    short_tokens: Count
    stride_tokens: Count
    precision: Precision = "bf16"  # of the scorer


class LmEval(Frozen):
    """Tasks of lm-eval by name, the benchmarks lm_eval:TASK."""

    include_path: str | None = None  # folder of YAML files with tasks of one's own, as lm-eval's --include_path
    data: str | None = None  # directory with ORG/NAME; "hub"; None: the shipped ones. What it lacks is the hub's
    unsafe_code: bool = False  # ask tasks, too, whose scores run code that the model writes
    fewshot: int | None = Field(default=None, ge=0)  # None: as the task says
    samples: Count | None = None  # per task; None: all
    max_new_tokens: Count | None = None  # a cap on the tasks' own lengths; None: as they are
    chat_template: bool = False  # ask by the tokenizer's, examples as turns of the conversation


class Helmet(Frozen):
    """HELMET's recall, RAG, re-ranking and, where `data` has icl/, in-context learning."""

    data: str | None = None  # HELMET's unpacked `data`
    samples: Count | None = None  # per task and length; None: all of 100 questions, of in-context learning 500


class Nolima(Frozen):
    """NoLiMa, one-hop and two-hop."""

    data: str | None = None  # directory with needlesets/ and haystack/
    samples: Count | None = None  # per task and length; None: all
    max_new_tokens: Count = 192


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
    helmet: Helmet
    nolima: Nolima
    lm_eval: LmEval


class Execution(Frozen):
    """How stages run here (options.toml says what each field does): never part of a fingerprint.

    A user's choices among these fields replace the scale's own.
    """

    launcher: Literal["inline", "torchrun", "srun"] = "inline"
    processes: AtLeastOne = 1
    nodes: AtLeastOne = 1
    srun_options: str | None = None
    deadline_seconds: float | None = Field(default=None, gt=0)
    sequence_parallel: AtLeastOne = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpus: AtLeastOne | Literal["all"] = 1
    slots: int | None = Field(default=None, ge=1)
    slots_per_gpu: AtLeastOne = 1
    micro_batch_sequences: AtLeastOne = 1
    eval_batch_sequences: int | None = Field(default=None, ge=1)
    save_every_steps: AtLeastOne = 40
    deepspeed_stage: Literal[0, 2, 3] = 0
    convert_checkpoints: bool = False
    checkpointing: Checkpointing = "none"
    offload_activations: bool = False
    deterministic: bool = False
    fused: bool = False
    compiled: bool = False
    report_to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ("tensorboard",)
    tensor_parallel: AtLeastOne = 1
    endpoint: str | None = None

    @property
    def processes_per_node(self) -> int:
        return self.processes // self.nodes

    @property
    def sequences_per_pass(self) -> int:
        """Different sequences that all processes together train on in one forward pass."""
        return self.processes // self.sequence_parallel * self.micro_batch_sequences
