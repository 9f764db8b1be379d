"""Of a recipe what is there before the method: corpora, how they become sequences, base models and their training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator


class Frozen(BaseModel):
    """A record of values: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


# --- Corpora -----------------------------------------------------------------------------------


class NovelCorpus(Frozen):
    """The synthetic novel: seeded text in which the kind of each token is known."""

    kind: Literal["novel"] = "novel"
    seed: int = 0
    documents: PositiveInt = 64
    document_tokens: PositiveInt = 20_000  # length aimed at; documents vary around it
    validation_documents: PositiveInt = 8


class FilesCorpus(Frozen):
    """A directory of .txt, .jsonl or .parquet files (field `text`); its content is its identity."""

    kind: Literal["files"] = "files"
    path: str
    validation_documents: PositiveInt = 8  # the last in the order of a seeded shuffle


class HubCorpus(Frozen):
    """A data set of the Hugging Face hub, read as parquet or JSON at a pinned revision."""

    kind: Literal["hub"] = "hub"
    repo_id: str
    revision: str
    subset: str | None = None
    train_split: str = "train"
    validation_split: str | None = "validation"
    text_field: str = "text"
    domain_field: str | None = None  # dotted path, e.g. meta.redpajama_set_name (LCDE keeps domain shares)


class EchoCorpus(Frozen):
    """Random passages, each said again and again: text that only looking back explains."""

    kind: Literal["echo"] = "echo"
    seed: int = 0
    documents: PositiveInt = 64
    document_tokens: PositiveInt = 1000  # length aimed at
    validation_documents: PositiveInt = 8


Source = Annotated[NovelCorpus | FilesCorpus | HubCorpus | EchoCorpus, Field(discriminator="kind")]


class MixturePart(Frozen):
    """One corpus of a mixture and its share of the sequences; `packed`: documents end to end, end-of-text between."""

    corpus: Source
    share: float = Field(gt=0, lt=1)
    packed: bool = False  # False: each document on its own, a short remainder left out


class MixtureCorpus(Frozen):
    """Several corpora in fixed shares of the sequences, shuffled together; validation documents are those of all."""

    kind: Literal["mixture"] = "mixture"
    parts: tuple[MixturePart, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _whole(self) -> MixtureCorpus:
        total = sum(part.share for part in self.parts)
        if abs(total - 1) > 1e-9:
            raise ValueError(f"parts: their shares add up to {total:g}, not to 1")
        return self


Corpus = Annotated[NovelCorpus | FilesCorpus | HubCorpus | EchoCorpus | MixtureCorpus, Field(discriminator="kind")]


class Chunking(Frozen):
    """How documents become training sequences (Section 4, Datasets)."""

    long_tokens: PositiveInt
    mixture: Literal["per_document", "lcde"] = "per_document"
    long_document_tokens: PositiveInt = 8192  # LCDE: longer documents are upsampled
    long_document_factor: PositiveInt = 5  # LCDE: how many times as often they are drawn
    sequences: PositiveInt | None = None  # stop after so many; None keeps all
    seed: int = 0


# --- Base models -------------------------------------------------------------------------------


PHI_ROTATED_SHARE = 0.4  # of a head's dimensions, as in Phi-2's configuration: 32 of 80


class Architecture(Frozen):
    """A Llama or Phi of our own (transformers' configuration), for models that the pipeline trains itself."""

    family: Literal["llama", "phi"] = "llama"
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    rope_theta: PositiveFloat = 10_000.0
    tie_embeddings: bool = True

    @model_validator(mode="after")
    def _rotated(self) -> Architecture:
        if self.family == "phi" and int(PHI_ROTATED_SHARE * self.hidden_size / self.heads) % 2:
            raise ValueError(
                f"hidden_size {self.hidden_size} with {self.heads} heads: a Phi rotates {PHI_ROTATED_SHARE} of a head, "
                "which must be even; take heads of 80, as Phi-2's"
            )
        return self


class Training(Frozen):
    """The optimisation of Appendix B (or of a pre-training run); schedule: linear warm-up, then constant."""

    steps: PositiveInt
    sequences_per_step: PositiveInt
    learning_rate: PositiveFloat
    warmup_steps: int = Field(ge=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: PositiveFloat = 1e-8
    weight_decay: float = Field(default=0.01, ge=0)
    gradient_clip: PositiveFloat = 1.0
    precision: Literal["fp32", "bf16"] = "bf16"
    final_learning_rate_share: float = Field(default=1.0, ge=0, le=1)  # <1: linear decay to this share


class HubBase(Frozen):
    """A causal language model of the hub at a pinned revision."""

    kind: Literal["hub"] = "hub"
    repo_id: str
    revision: str
    context_tokens: PositiveInt


class ShippedBase(Frozen):
    """The tiny Llama in tokenweight/assets, trained on the synthetic novel by scripts/make_smoke_base.py."""

    kind: Literal["shipped"] = "shipped"
    context_tokens: PositiveInt = 1024


class LocalBase(Frozen):
    """A checkpoint directory that transformers can load; its content is its identity."""

    kind: Literal["local"] = "local"
    path: str
    context_tokens: PositiveInt


class PretrainBase(Frozen):
    """A base trained by the pipeline itself (stage `pretrain`) on short sequences of a corpus."""

    kind: Literal["pretrain"] = "pretrain"
    tokenizer: str | None = None  # directory with tokenizer.json; None: the shipped tokenizer
    architecture: Architecture
    corpus: Corpus
    context_tokens: PositiveInt
    training: Training
    seed: int = 0


class RandomBase(Frozen):
    """Random weights in a real configuration, for benchmarks: time, memory and correctness do not depend on values.

    The weights are drawn where the model is loaded; under ZeRO-3 no process ever holds it whole.
    """

    kind: Literal["random"] = "random"
    config: str  # llama3-8b, llama3.2-1b, phi-2, or a config.json of transformers; its content is its identity
    layers: PositiveInt | None = None  # None: as many as the configuration has
    tokenizer: str | None = None  # directory with tokenizer.json; None: the shipped tokenizer
    context_tokens: PositiveInt
    seed: int = 0


Base = Annotated[HubBase | ShippedBase | LocalBase | PretrainBase | RandomBase, Field(discriminator="kind")]
