"""MMLU's 57 subjects: five dev and two test rows each, decidable questions of our own."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from random import Random

from tokenweight.corpus.manuscript import KEEPSAKES, PLACES, TRADES

SUBJECTS = [
    "abstract_algebra",
    "anatomy",
    "astronomy",
    "business_ethics",
    "clinical_knowledge",
    "college_biology",
    "college_chemistry",
    "college_computer_science",
    "college_mathematics",
    "college_medicine",
    "college_physics",
    "computer_security",
    "conceptual_physics",
    "econometrics",
    "electrical_engineering",
    "elementary_mathematics",
    "formal_logic",
    "global_facts",
    "high_school_biology",
    "high_school_chemistry",
    "high_school_computer_science",
    "high_school_european_history",
    "high_school_geography",
    "high_school_government_and_politics",
    "high_school_macroeconomics",
    "high_school_mathematics",
    "high_school_microeconomics",
    "high_school_physics",
    "high_school_psychology",
    "high_school_statistics",
    "high_school_us_history",
    "high_school_world_history",
    "human_aging",
    "human_sexuality",
    "international_law",
    "jurisprudence",
    "logical_fallacies",
    "machine_learning",
    "management",
    "marketing",
    "medical_genetics",
    "miscellaneous",
    "moral_disputes",
    "moral_scenarios",
    "nutrition",
    "philosophy",
    "prehistory",
    "professional_accounting",
    "professional_law",
    "professional_medicine",
    "professional_psychology",
    "public_relations",
    "security_studies",
    "sociology",
    "us_foreign_policy",
    "virology",
    "world_religions",
]
ROWS = {"dev": 5, "test": 2}

Item = tuple[str, str, list[str]]  # question, right answer, wrong answers


def _sum(rng: Random, subject: str) -> Item:
    a, b = rng.randint(2, 40), rng.randint(2, 40)
    return f"What is {a} plus {b}?", str(a + b), [str(a + b + d) for d in (1, 2, 10)]


def _letters(rng: Random, subject: str) -> Item:
    word = rng.choice(subject.split("_"))
    return f"How many letters has the word '{word}'?", str(len(word)), [str(len(word) + d) for d in (1, 2, 3)]


def _first_letter(rng: Random, subject: str) -> Item:
    word = rng.choice(subject.split("_"))
    wrong = [letter for letter in "abcdefghijklmnopqrstuvwxyz" if letter != word[0]]
    return f"With which letter does the word '{word}' begin?", word[0], rng.sample(wrong, 3)


def _alphabet(rng: Random, subject: str) -> Item:
    words = rng.sample(KEEPSAKES, 4)
    return "Which of these words comes first in the alphabet?", min(words), [w for w in words if w != min(words)]


def _trade(rng: Random, subject: str) -> Item:
    return "Which of these is a trade?", rng.choice(TRADES), rng.sample(KEEPSAKES, 3)


def _copy(rng: Random, subject: str) -> Item:
    place, *others = rng.sample(PLACES, 4)
    return f"The meeting on {subject.replace('_', ' ')} was held in {place}. Where was it held?", place, others


KINDS: tuple[Callable[[Random, str], Item], ...] = (_sum, _letters, _first_letter, _alphabet, _trade, _copy)


def write(out: Path) -> None:
    """Write dev/<subject>_dev.csv and test/<subject>_test.csv."""
    for split, rows in ROWS.items():
        (out / split).mkdir(parents=True, exist_ok=True)
        for subject in SUBJECTS:
            rng = Random(f"smoke-eval/mmlu/{subject}/{split}")
            with (out / split / f"{subject}_{split}.csv").open("w", encoding="utf-8", newline="") as file:
                table = csv.writer(file, lineterminator="\n")
                table.writerow(["question", "choice0", "choice1", "choice2", "choice3", "answer"])
                table.writerows(_row(rng, subject) for _ in range(rows))


def _row(rng: Random, subject: str) -> list[str | int]:
    question, right, wrong = rng.choice(KINDS)(rng, subject)
    answer = rng.randrange(4)
    choices = [*wrong[:answer], right, *wrong[answer:]]
    return [question, *choices, answer]
