"""MMLU by lm-eval's own tasks: 5-shot accuracy, examples the first of the dev split (Section 4, Evaluation)."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import HubData
from tokenweight.evaluation.data import Task, table
from tokenweight.evaluation.harness_tasks import Documents, HarnessBenchmark
from tokenweight.evaluation.samples import Classes, Scored
from tokenweight.recipes.schema import Evaluation

MMLU_SUBJECTS = tuple(table("harness")["mmlu"])
LETTERS = "ABCD"
_COLUMNS = ["question", "choice0", "choice1", "choice2", "choice3", "answer"]


class Mmlu(HarnessBenchmark):
    name = "mmlu"
    folder = "mmlu/default"
    prefix = "mmlu_"
    tasks = dict.fromkeys(MMLU_SUBJECTS, Task(metric="acc", greatest_mean=0.97))
    fewshot_order = "first_n of dev"
    files = ("dev/{task}_dev.csv", "test/{task}_test.csv")
    layout = "a directory with dev/ and test/"
    hub_data = HubData("cais/mmlu", "c30699e8356da336a370243923dbaf21066bb9fe", "abstract_algebra", "--mmlu")

    def splits(self, files: list[Path], evaluation: Evaluation) -> dict[str, Documents]:
        (dev, test), shots = map(read_split, files), evaluation.mmlu.fewshot
        if len(dev) < shots:
            raise UserError(f"{files[0]}: {len(dev)} examples for {shots} shots; give more or lower fewshot")
        return {"dev": dev, "test": test}

    def references(self, task: Any, document: Any) -> list[str]:
        return [LETTERS[document["answer"]]]

    def score(self, task: str, output: str, references: list[str], classes: Classes, evaluation: Evaluation) -> Scored:
        log_likelihoods = json.loads(output)
        letter = LETTERS[log_likelihoods.index(max(log_likelihoods))]  # the first among equals
        return Scored(letter, float(letter == references[0]))


def read_split(path: Path) -> Documents:
    """Documents of one CSV as lm-eval's MMLU knows them: question, choices, answer (0-3). UserError: another layout."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 ({error.object[error.start : error.end]!r}); convert it") from None
    header, *records = list(csv.reader(io.StringIO(text, newline=""))) or [[]]
    if header and header != _COLUMNS:
        raise UserError(f"{path}: the header is {','.join(header)[:80]!r}; it must be {','.join(_COLUMNS)}")
    documents = []
    for number, record in enumerate(filter(None, records), start=1):
        if len(record) < len(_COLUMNS) or record[5] not in ("0", "1", "2", "3"):
            raise UserError(f"{path}: record {number} lacks a field or has no answer 0-3; correct it")
        documents.append({"question": record[0], "choices": record[1:5], "answer": int(record[5])})
    if not documents:
        raise UserError(f"{path}: is empty; give a complete file")
    return documents
