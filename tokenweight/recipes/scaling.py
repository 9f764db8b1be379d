"""What a scale puts in place of the paper's values, in one shape for every scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenweight.recipes.ablations import PHI2_ID
from tokenweight.recipes.cited import Settings, replace
from tokenweight.recipes.corpora import FINEWEB


@dataclass(frozen=True)
class Scaling:
    """Replacements by the part of a recipe they belong to; a part is applied where the paper's recipe has it."""

    base: Settings
    extension: Settings
    data: Settings
    lcde: Settings
    rare_long: Settings  # in place of FineWeb
    training: Settings
    windows: Settings
    scorers: Mapping[str, Settings]  # in place of a scorer of the hub, by its id
    evaluation: Settings
    second_base: Settings  # in place of Phi-2

    def apply(self, paper: Settings) -> Settings:
        """The scale's version of a recipe of the paper."""
        second = "base.repo_id" in paper and paper["base.repo_id"].value == PHI2_ID
        parts = [self.second_base if second else self.base, self.evaluation]
        if "extension.long_tokens" in paper:
            parts.append(self.extension)
        if "training.steps" in paper:
            parts += [self.data, self.training]
        if "chunking.mixture" in paper:
            parts.append(self.lcde)
        if "corpus.repo_id" in paper and paper["corpus.repo_id"].value == FINEWEB.repo_id:
            parts.append(self.rare_long)
        if "scorer.kind" in paper:
            parts.append(self.windows)
        if "scorer.model.repo_id" in paper:
            parts.append(self.scorers[paper["scorer.model.repo_id"].value])
        return replace(paper, *parts)
