"""A resolved experiment: its rows as recipes at a scale, each with its seeds, and the lengths that its columns follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenweight.pipeline.experiment import Experiment, Lengths
from tokenweight.recipes import Inputs, Loaded, load_all
from tokenweight.recipes.inputs import last_part
from tokenweight.recipes.schema import HubBase, PretrainBase

PHI2_ID = "microsoft/phi-2"


@dataclass(frozen=True)
class ResolvedExperiment:
    """What a plan and a report are made from."""

    experiment: Experiment
    scale: str
    recipes: dict[tuple[str, int], Loaded]  # by row and seed
    inputs: Inputs
    lengths: Lengths
    about: str  # what the scale's numbers are
    command: str  # that makes it
    notes: tuple[str, ...] = ()  # where this run departs from the paper

    @property
    def seeds(self) -> list[int]:
        """Ascending."""
        return sorted({seed for _, seed in self.recipes})

    @property
    def loaded(self) -> list[Loaded]:
        """Each recipe once, in the order of seeds and rows."""
        return list({loaded.recipe.name: loaded for loaded in self.recipes.values()}.values())


def without_places(value: Any) -> Any:
    """A setting as others may see it: of absolute paths the last part."""
    if isinstance(value, dict):
        return {key: without_places(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_places(part) for part in value]
    return last_part(value) if isinstance(value, str) else value


def lengths_of(recipes: Sequence[Loaded]) -> Lengths:
    """The lengths of all recipes together: of models of different contexts those that any of them is measured at."""
    evaluations = [loaded.recipe.evaluation for loaded in recipes]
    first = evaluations[0]
    longest = max(loaded.recipe.context_tokens for loaded in recipes)
    return Lengths(
        ruler=_union(evaluation.ruler.lengths_tokens for evaluation in evaluations),
        perplexity=_union(evaluation.perplexity.lengths_tokens for evaluation in evaluations),
        planted=planted_distances(first.planted.short_tokens, longest),
        longbench_split=first.longbench.split_tokens,
        longbench_unit=first.longbench.length_unit,
    )


def planted_distances(short_tokens: int, context_tokens: int) -> tuple[int, ...]:
    """The farthest distance of each bin of recall by distance: multiples of the short context, up to the long one."""
    return (*range(short_tokens, context_tokens, short_tokens), context_tokens)


def departures(recipes: dict[str, Loaded]) -> tuple[str, ...]:
    """Where models stand for others than those that the paper's own recipes name, a sentence each; recipes by their names."""
    paper = {loaded.recipe.name: loaded.recipe for loaded in load_all(list(recipes), "paper")}
    pairs = [(loaded.recipe, paper[name]) for name, loaded in recipes.items()]
    found: dict[str, None] = {}
    for ours, theirs in pairs:
        base, of_paper = ours.base, theirs.base
        small = isinstance(base, PretrainBase) and isinstance(of_paper, HubBase) and of_paper.repo_id == PHI2_ID
        if small:
            found["In place of Phi-2 stands a small model of its architecture, pre-trained by the pipeline."] = None
        factors = [
            recipe.extension.long_tokens / recipe.base.context_tokens for recipe in (ours, theirs) if recipe.extension
        ]
        if len(set(factors)) == 2:
            found[f"The context is extended by a factor of {factors[0]:g}; the paper's by {factors[1]:g}."] = None
    scorers = [
        theirs.scorer.model.repo_id.rpartition("/")[2]
        for ours, theirs in pairs
        if ours.scorer and isinstance(ours.scorer.model, PretrainBase)
        and theirs.scorer and isinstance(theirs.scorer.model, HubBase)
    ]  # fmt: skip
    if scorers:
        names = ", ".join(dict.fromkeys(scorers))
        found[f"In place of the scorers {names} stand small models, pre-trained by the pipeline."] = None
    return tuple(found)


def _union(lengths_tokens: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted({n for lengths in lengths_tokens for n in lengths}))
