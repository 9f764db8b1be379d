"""The 13 tasks of RULER, as in the 2024 program (tasks.yaml): templates, needle counts, tokens to generate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenweight.evaluation.data import table

Profile = Literal["paper", "official-2024"]
Source = Literal["haystack", "squad", "hotpotqa"]

NEEDLE = "One of the special magic {type_needle_v} for {key} is: {value}."
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."


@dataclass(frozen=True)
class RulerTask:
    """One of the 13 tasks; the fields from `hidden_in` on are those of a needle in a haystack (Appendix C, Retrieval)."""

    name: str
    family: Literal["niah", "variable_tracking", "common_words", "frequent_words", "qa"]
    tokens_to_generate: int
    template: str
    prefix: str  # of the answer
    metric: str = "string_match_all"
    source: Source | None = None  # which of RULER's texts the samples are made of
    hidden_in: Literal["repeat", "essay", "needle"] = "essay"
    key_type: Literal["words", "uuids"] = "words"
    value_type: Literal["numbers", "uuids"] = "numbers"
    keys: int = 1
    values_per_key: int = 1
    queries: int = 1


_TABLE = table("ruler/tasks")
TASKS = {
    name: RulerTask(name=name, **_TABLE["families"][values["family"]], **values)
    for name, values in _TABLE["tasks"].items()
}
