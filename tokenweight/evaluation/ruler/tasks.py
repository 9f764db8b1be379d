"""The 13 tasks of RULER: templates, needle counts and tokens to generate, as in the 2024 program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tokenweight.errors import UserError

Profile = Literal["paper", "official-2024"]
Family = Literal["niah", "variable_tracking", "common_words", "frequent_words", "qa"]

NIAH_TEMPLATE = (
    "Some special magic {type_needle_v} are hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the {type_needle_v} afterwards.\n{context}\n"
    "What are all the special magic {type_needle_v} for {query} mentioned in the provided text?"
)
NIAH_PREFIX = " The special magic {type_needle_v} for {query} mentioned in the provided text are"
NEEDLE = "One of the special magic {type_needle_v} for {key} is: {value}."
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."

VT_TEMPLATE = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n{context}\n"
    "Question: Find all variables that are assigned the value {query} in the text above."
)
VT_PREFIX = (  # "assgined" is the official spelling
    " Answer: According to the chain(s) of variable assignment in the text above, "
    "{num_v} variables are assgined the value {query}, they are: "
)

CWE_TEMPLATE = (
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n{context}\n"
    "Question: What are the 10 most common words in the above list?"
)
CWE_PREFIX = " Answer: The top 10 words that appear most often in the list are:"

FWE_TEMPLATE = (
    "Read the following coded text and track the frequency of each coded word. "
    "Find the three most frequently appeared coded words. {context}\n"
    "Question: Do not provide any explanation. Please ignore the dots '....'. "
    "What are the three most frequently appeared words in the above coded text?"
)
FWE_PREFIX = " Answer: According to the coded text above, the three most frequently appeared words are:"

QA_TEMPLATE = (
    "Answer the question based on the given documents. Only give me the answer and do not output any other words."
    "\n\nThe following are given documents.\n\n{context}\n\n"
    "Answer the question based on the given documents. Only give me the answer and do not output any other words."
    "\n\nQuestion: {query}"
)
QA_PREFIX = " Answer:"


@dataclass(frozen=True)
class Needles:
    """What a needle-in-a-haystack task hides, where, and how much of it is asked for (Appendix C, Retrieval)."""

    haystack: Literal["repeat", "essay", "needle"]
    key_type: Literal["words", "uuids"] = "words"
    value_type: Literal["numbers", "uuids"] = "numbers"
    keys: int = 1
    values_per_key: int = 1
    queries: int = 1


@dataclass(frozen=True)
class RulerTask:
    """One of the 13 tasks; `metric` is string_match_part for question answering, else string_match_all."""

    name: str
    family: Family
    tokens_to_generate: int
    needles: Needles = field(default_factory=lambda: Needles("essay"))
    questions: Literal["squad", "hotpotqa"] = "squad"

    @property
    def metric(self) -> str:
        return "string_match_part" if self.family == "qa" else "string_match_all"

    @property
    def source(self) -> Literal["haystack", "squad", "hotpotqa"] | None:
        """Which of RULER's texts the samples are made of."""
        if self.family == "qa":
            return self.questions
        return "haystack" if self.family == "niah" and self.needles.haystack == "essay" else None


def _niah(name: str, needles: Needles) -> RulerTask:
    return RulerTask(name, "niah", 128, needles=needles)


TASKS = {
    task.name: task
    for task in (
        _niah("niah_single_1", Needles("repeat")),
        _niah("niah_single_2", Needles("essay")),
        _niah("niah_single_3", Needles("essay", value_type="uuids")),
        _niah("niah_multikey_1", Needles("essay", keys=4)),
        _niah("niah_multikey_2", Needles("needle")),
        _niah("niah_multikey_3", Needles("needle", key_type="uuids", value_type="uuids")),
        _niah("niah_multivalue", Needles("essay", values_per_key=4)),
        _niah("niah_multiquery", Needles("essay", keys=4, queries=4)),
        RulerTask("vt", "variable_tracking", 30),
        RulerTask("cwe", "common_words", 120),
        RulerTask("fwe", "frequent_words", 50),
        RulerTask("qa_1", "qa", 32, questions="squad"),
        RulerTask("qa_2", "qa", 32, questions="hotpotqa"),
    )
}


def ruler_task(name: str) -> RulerTask:
    """The task of that name.

    Raises:
        UserError: no such task.
    """
    if name not in TASKS:
        raise UserError(f"ruler task {name!r}: unknown; choose one of {', '.join(TASKS)}")
    return TASKS[name]
