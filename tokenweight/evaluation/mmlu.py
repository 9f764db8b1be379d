"""MMLU by lm-eval's own tasks: 5-shot accuracy, examples the first of the dev split (Section 4, Evaluation)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import HubData
from tokenweight.evaluation.harness_tasks import Documents, HarnessBenchmark
from tokenweight.evaluation.samples import Scored
from tokenweight.recipes.schema import Evaluation

LETTERS = "ABCD"
_COLUMNS = ["question", "choice0", "choice1", "choice2", "choice3", "answer"]

MMLU_SUBJECTS = (
    "abstract_algebra", "anatomy", "astronomy", "business_ethics", "clinical_knowledge", "college_biology",
    "college_chemistry", "college_computer_science", "college_mathematics", "college_medicine", "college_physics",
    "computer_security", "conceptual_physics", "econometrics", "electrical_engineering", "elementary_mathematics",
    "formal_logic", "global_facts", "high_school_biology", "high_school_chemistry", "high_school_computer_science",
    "high_school_european_history", "high_school_geography", "high_school_government_and_politics",
    "high_school_macroeconomics", "high_school_mathematics", "high_school_microeconomics", "high_school_physics",
    "high_school_psychology", "high_school_statistics", "high_school_us_history", "high_school_world_history",
    "human_aging", "human_sexuality", "international_law", "jurisprudence", "logical_fallacies", "machine_learning",
    "management", "marketing", "medical_genetics", "miscellaneous", "moral_disputes", "moral_scenarios", "nutrition",
    "philosophy", "prehistory", "professional_accounting", "professional_law", "professional_medicine",
    "professional_psychology", "public_relations", "security_studies", "sociology", "us_foreign_policy", "virology",
    "world_religions",
)  # fmt: skip


class Mmlu(HarnessBenchmark):
    name = "mmlu"
    folder = "mmlu/default"
    prefix = "mmlu_"
    tasks = MMLU_SUBJECTS
    metric_name = "acc"
    fewshot_order = "first_n of dev"
    choices = True
    files = ("dev/{task}_dev.csv", "test/{task}_test.csv")
    layout = "a directory with dev/ and test/"
    hub_data = HubData("cais/mmlu", "c30699e8356da336a370243923dbaf21066bb9fe", "abstract_algebra", "--mmlu")

    def splits(self, files: list[Path], evaluation: Evaluation) -> dict[str, Documents]:
        (dev, test), shots = map(read_split, files), evaluation.mmlu.fewshot
        if len(dev) < shots:
            raise UserError(f"{files[0]}: {len(dev)} examples for {shots} shots; give more or lower fewshot")
        return {"dev": dev, "test": test}

    def references(self, document: dict[str, Any]) -> list[str]:
        return [LETTERS[document["answer"]]]

    def score(
        self, task: str, output: str, references: list[str], all_classes: list[str] | None, evaluation: Evaluation
    ) -> Scored:
        letter = chosen(json.loads(output))
        return Scored(letter, float(letter == references[0]))

    def implausible_mean(self, task: str) -> float:
        return 0.97


def read_split(path: Path) -> list[dict[str, Any]]:
    """Documents of one CSV as lm-eval's MMLU knows them: question, choices, answer (0-3).

    Raises:
        UserError: not UTF-8, another header, a row that lacks a field, or an answer outside 0-3.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 ({error.object[error.start : error.end]!r}); convert it") from None
    if not text:
        raise UserError(f"{path}: is empty; give a complete file")
    header, *records = csv.reader(io.StringIO(text, newline=""))
    if header != _COLUMNS:
        raise UserError(f"{path}: header {','.join(header)}; it must be {','.join(_COLUMNS)}")
    documents = []
    for number, record in enumerate(filter(None, records), start=1):
        if len(record) < len(_COLUMNS) or record[5] not in ("0", "1", "2", "3"):
            raise UserError(f"{path}: record {number} lacks a field or has no answer 0-3; mend it")
        documents.append({"question": record[0], "choices": record[1:5], "answer": int(record[5])})
    if not documents:
        raise UserError(f"{path}: holds no question; give a complete file")
    return documents


def chosen(log_likelihoods: Sequence[float]) -> str:
    """Letter of the most likely choice, the first among equals (as numpy.argmax)."""
    return LETTERS[max(range(len(log_likelihoods)), key=lambda i: log_likelihoods[i])]
