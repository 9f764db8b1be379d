"""What a scale puts in place of the paper's values, in one shape for every scale."""

from __future__ import annotations

from dataclasses import dataclass

from tokenweight.recipes.cited import Settings, replace


@dataclass(frozen=True)
class Scaling:
    """Replacements by the part of a recipe they belong to; a part is applied where the paper's recipe has it."""

    base: Settings
    extension: Settings
    data: Settings
    lcde: Settings
    training: Settings
    windows: Settings
    evaluation: Settings

    def apply(self, paper: Settings) -> Settings:
        """The scale's version of a recipe of the paper."""
        parts = [self.base, self.evaluation]
        if "extension.long_tokens" in paper:
            parts.append(self.extension)
        if "training.steps" in paper:
            parts += [self.data, self.training]
        if "chunking.mixture" in paper:
            parts.append(self.lcde)
        if "scorer.kind" in paper:
            parts.append(self.windows)
        return replace(paper, *parts)
