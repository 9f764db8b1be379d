"""The stages `initialize`, `pretrain`, `score` and `train`. Loads torch where they run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenweight.pipeline.stage import Artifact, Inputs, Stage
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Architecture, Execution, Parity, Precision, Scorer, Training, Weighting


class Initialize(Stage):
    """Random weights in a real configuration, for benchmarks. Input: tokenizer."""

    name = "initialize"
    folder = "model"
    config: dict[str, Any]  # config.json, with its layers and its context
    seed: int = 0

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        config = self.config
        return f"{config['model_type']}-{config.get('num_hidden_layers')}x{config.get('hidden_size')}-random"

    def run(self, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
        from tokenweight.training.bases import initialize

        return initialize(self.config, self.seed, inputs["tokenizer"].path, out_dir)


class Pretrain(Stage):
    """A base trained by the pipeline on sequences of its own context. Inputs: tokenizer, chunks."""

    name = "pretrain"
    folder = "model"
    architecture: Architecture
    context_tokens: int
    training: Training
    seed: int = 0

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        shape = self.architecture
        return f"{shape.family}-{shape.layers}x{shape.hidden_size}-{inputs['chunks'].name}"

    def short_label(self, inputs: Mapping[str, Artifact]) -> str:
        return "pretrained"

    def run(self, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
        from tokenweight.training.bases import pretrain

        return pretrain(self, inputs, out_dir, execution, progress)


class Score(Stage):
    """Short-context NLL of the sequences that training reads, by a frozen scorer (Section 3.1, choice of base model).

    Inputs: model, chunks, and the tokenizer of the model to be trained, whose vocabulary the scorer must share.
    """

    name = "score"
    short_tokens: int
    stride_tokens: int
    sequences: int
    precision: Precision
    parity: Parity = "paper"

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        return f"{inputs['model'].short_name}-on-{inputs['chunks'].name}"

    def run(self, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
        from tokenweight.training.scoring import score

        return score(self, inputs, out_dir, execution, progress)


class Train(Stage):
    """Continued pre-training with token weights (Section 3). Inputs: model, chunks, and scores of a frozen scorer.

    The scorer's model is an input: here it is None.
    """

    name = "train"
    folder = "model"
    training: Training
    weighting: Weighting = Weighting()
    scorer: Scorer | None = None
    seed: int = 0
    parity: Parity = "paper"

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        name = f"{inputs['model'].short_name}-{inputs['chunks'].name}-{weighting_label(self.weighting, self.scorer)}"
        name += "-as-authors" if self.parity == "authors" else ""
        return name + (f"-seed{self.seed}" if self.seed else "")

    def run(self, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
        from tokenweight.training.run import train

        return train(self, inputs, out_dir, execution, progress)

    @property
    def sequences(self) -> int:
        """How many the run reads."""
        return self.training.steps * self.training.sequences_per_step

    @property
    def scores_itself(self) -> bool:
        """Whether the model in training is the short-context model too (unfrozen)."""
        return self.weighting.needs_short_nll and self.scorer is not None and self.scorer.kind == "unfrozen"


def weighting_label(weighting: Weighting, scorer: Scorer | None) -> str:
    """Readable name of a weighting, e.g. frozen-sparse-0.4 or unfrozen-dense-0.75-ppmi."""
    if scorer is None:
        return "uniform"
    amount = {"sparse": weighting.kappa, "dense": weighting.lambda_}.get(weighting.postprocessing)
    parts: list[str] = [scorer.kind, weighting.postprocessing]
    if amount is not None:
        parts.append(f"{amount:g}")
    if weighting.score != "abs_pmi":
        parts.append(weighting.score)
    if scorer.precision != "training":
        parts.append(f"{scorer.precision}-scoring")
    return "-".join(parts)
