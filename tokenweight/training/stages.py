"""The stages `initialize`, `pretrain`, `score`, `select`, `weigh` and `train`. Loads torch where they run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from tokenweight.assets import SHIPPED_CONFIGS, shipped_config
from tokenweight.errors import UserError
from tokenweight.files import read_json
from tokenweight.pipeline.stage import Artifact, Stage
from tokenweight.recipes import schema


class Initialize(Stage):
    """Random weights in a real configuration, for benchmarks. Input: tokenizer."""

    name = "initialize"
    folder = "model"
    work = "training.bases.initialize"
    config: dict[str, Any]  # config.json, with its layers and its context
    seed: int = 0

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        config = self.config
        return f"{config['model_type']}-{config.get('num_hidden_layers')}x{config.get('hidden_size')}-random"


class Pretrain(Stage):
    """A base trained by the pipeline on sequences of its own context. Inputs: tokenizer, chunks."""

    name = "pretrain"
    folder = "model"
    work = "training.bases.pretrain"
    architecture: schema.Architecture
    context_tokens: int
    training: schema.Training
    seed: int

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        shape = self.architecture
        return f"{shape.family}-{shape.layers}x{shape.hidden_size}-{inputs['chunks'].identity.name}"

    def short_label(self, inputs: Mapping[str, Artifact]) -> str:
        return "pretrained"


class Score(Stage):
    """Short-context NLL of the sequences that training reads, by a frozen scorer (Section 3.1, choice of base model).

    Inputs: model, chunks, and the tokenizer of the model to be trained, whose vocabulary the scorer must share.
    """

    name = "score"
    work = "training.scoring.score"
    short_tokens: int
    stride_tokens: int
    sequences: int | None  # None: all that the chunks have
    precision: schema.Precision
    parity: schema.Parity = "paper"

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        return f"{inputs['model'].short_name}-on-{inputs['chunks'].identity.name}"


class ScoreWithEntropy(Score):
    """Of whole sequences, with the entropy of each prediction beside its NLL, for weightings that look at it."""

    entropy: Literal[True] = True


class Select(Stage):
    """The sequences to which long context says most (LongFilter). Inputs: chunks, and scores `long` and `short` of them."""

    name = "select"
    work = "training.selecting.select"
    share: float

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        return f"{inputs['chunks'].identity.name}-longfilter-{self.share:g}"


class Weigh(Stage):
    """A data set of weights, for trainers elsewhere (docs/trainers.md). Inputs: chunks, and scores `long` and `short` of them.

    Of `long` the window is the sequence.
    """

    name = "weigh"
    work = "training.weighing.weigh"
    weighting: schema.Weighting
    short_tokens: int
    stride_tokens: int
    own_first_window: bool  # its short NLL is the long one
    seed: int = 0

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        return f"{inputs['long'].identity.name}-{weighting_label(self.weighting, None)}"


class Train(Stage):
    """Continued pre-training with token weights (Section 3). Inputs: model, chunks, and scores of a frozen scorer.

    The scorer's model is an input: here it is None.
    """

    name = "train"
    folder = "model"
    work = "training.run.train"
    training: schema.Training
    weighting: schema.Weighting = schema.Weighting()
    scorer: schema.Scorer | None = None
    seed: int = 0
    parity: schema.Parity = "paper"
    repeats: ClassVar[bool] = False  # whether it reads the corpus again from its beginning where that is short

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        name = f"{inputs['model'].short_name}-{inputs['chunks'].identity.name}-{weighting_label(self.weighting, self.scorer)}"
        name += "-as-authors" if self.parity == "authors" else ""
        return name + (f"-seed{self.seed}" if self.seed else "")

    @property
    def sequences(self) -> int:
        return self.training.steps * self.training.sequences_per_step

    @property
    def scores_itself(self) -> bool:
        """Whether the model in training is the short-context model too (unfrozen)."""
        return self.weighting.needs_short_nll and self.scorer is not None and self.scorer.kind == "unfrozen"


def weighting_label(weighting: schema.Weighting, scorer: schema.Scorer | None) -> str:
    """Readable name of a weighting, e.g. frozen-sparse-0.4 or unfrozen-dense-0.75-ppmi."""
    amount = {"sparse": weighting.kappa, "dense": weighting.lambda_}.get(weighting.postprocessing)
    parts = [scorer.kind if scorer else "", weighting.postprocessing, "" if amount is None else f"{amount:g}"]
    parts += [weighting.label if weighting.score != "abs_pmi" else ""]
    parts += [f"{scorer.precision}-scoring" if scorer and scorer.precision != "training" else ""]
    return "-".join(filter(None, parts))


def config_values(base: schema.RandomBase) -> dict[str, Any]:
    """The configuration that a base asks for, as config.json has it: with its layers and its context.

    Raises UserError where there is no such configuration.
    """
    path = shipped_config(base.config) if base.config in SHIPPED_CONFIGS else Path(base.config)
    values = read_json(path)
    if not isinstance(values, dict) or "model_type" not in values:
        raise UserError(
            f"base.config {base.config}: neither one of {', '.join(SHIPPED_CONFIGS)} nor a config.json of transformers"
        )
    layers = {} if base.layers is None else {"num_hidden_layers": base.layers}
    return {**values, **layers, "max_position_embeddings": base.context_tokens}


def architecture_values(stage: Pretrain, vocabulary: int | None) -> dict[str, Any]:
    """The configuration of a base to be trained on a `vocabulary` of so many tokens, as config.json has it."""
    shape = stage.architecture
    rotated = {"partial_rotary_factor": schema.PHI_ROTATED_SHARE} if shape.family == "phi" else {}  # as Phi-2 does
    return {
        "model_type": shape.family,
        "vocab_size": vocabulary,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": stage.context_tokens,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta, **rotated},
        "tie_word_embeddings": shape.tie_embeddings,
    }
