"""MMLU by lm-eval's own tasks: 5-shot accuracy, examples the first of the dev split (Section 4, Evaluation)."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.errors import UserError
from tokenweight.evaluation.samples import Sample, Scored
from tokenweight.evaluation.smoke_data import smoke_eval_dir
from tokenweight.pipeline.listing import is_there, refuse_listing
from tokenweight.recipes.schema import Mmlu

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel

HUB = {"repo_id": "cais/mmlu", "revision": "c30699e8356da336a370243923dbaf21066bb9fe"}
FOLDER = "mmlu/default"
METRIC = "acc"
LETTERS = "ABCD"
_COLUMNS = ["question", "choice0", "choice1", "choice2", "choice3", "answer"]


def subject_files(mmlu: Mmlu, subject: str) -> list[Path]:
    """The dev and test CSV of a subject; empty for hub data.

    Raises:
        UserError: a file is missing.
    """
    if mmlu.data == "hub":
        return []
    root = Path(mmlu.data) if mmlu.data else smoke_eval_dir() / "mmlu"
    files = [root / split / f"{subject}_{split}.csv" for split in ("dev", "test")]
    missing = [str(file) for file in files if not is_there(file)]
    if missing:
        raise UserError(f"evaluation.mmlu.data: {', '.join(missing)} missing; give a directory with dev/ and test/")
    return files


def read_split(path: Path) -> list[dict[str, Any]]:
    """Documents of one CSV as lm-eval's MMLU knows them: question, choices, answer (0-3).

    Raises:
        UserError: not UTF-8, another header, a row that lacks a field, or an answer outside 0-3.
    """
    try:
        return _read_split(path)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 ({error.object[error.start : error.end]!r}); convert it") from None


def _read_split(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        if reader.fieldnames is None:
            raise UserError(f"{path}: is empty; give a complete file")
        if list(reader.fieldnames) != _COLUMNS:
            raise UserError(f"{path}: header {','.join(reader.fieldnames)}; it must be {','.join(_COLUMNS)}")
        documents = []
        for line, record in enumerate(reader, start=2):
            if None in record.values() or record["answer"] not in ("0", "1", "2", "3"):
                raise UserError(f"{path}: record before line {line + 1} lacks a field or has no answer 0-3; mend it")
            choices = [record[f"choice{i}"] for i in range(4)]
            documents.append({"question": record["question"], "choices": choices, "answer": int(record["answer"])})
    if not documents:
        raise UserError(f"{path}: holds no question; give a complete file")
    return documents


def subjects_samples(subjects: Sequence[str], mmlu: Mmlu, harness: LoadedModel) -> dict[str, list[Sample]]:
    """Samples of each subject, prompts by lm-eval's task."""
    from tokenweight.evaluation.harness_tasks import LocalSplits, load_tasks, pinned

    overrides: dict[str, dict[str, Any]] = {}
    for subject in subjects:
        overrides[f"mmlu_{subject}"] = {"num_fewshot": mmlu.fewshot}
        if files := subject_files(mmlu, subject):
            refuse_listing("evaluation.mmlu.data", Path(mmlu.data or ""))
            dev, test = (read_split(file) for file in files)
            if len(dev) < mmlu.fewshot:
                raise UserError(f"{files[0]}: {len(dev)} examples for {mmlu.fewshot} shots; give more or lower fewshot")
            overrides[f"mmlu_{subject}"]["custom_dataset"] = LocalSplits(dev=dev, test=test)
        else:
            overrides[f"mmlu_{subject}"] |= pinned(HUB)
    tasks = load_tasks(FOLDER, overrides)
    return {
        subject: [
            _sample(tasks[f"mmlu_{subject}"], index, document, mmlu.fewshot, harness)
            for index, document in enumerate(islice(tasks[f"mmlu_{subject}"].eval_docs, mmlu.samples))
        ]
        for subject in subjects
    }


def _sample(task: Any, doc_id: int, document: dict[str, Any], shots: int, harness: LoadedModel) -> Sample:
    prompt = harness.fitting(lambda k: str(task.fewshot_context(document, num_fewshot=k)), shots, new_tokens=2)
    instances = task.construct_requests(doc=document, ctx=prompt.text, metadata=(task.config.task, doc_id, 1))

    def score(answers: list[tuple[float, bool]]) -> Scored:
        accuracy = task.process_results(document, answers)[METRIC]
        log_likelihoods = [float(value) for value, _ in answers]
        return Scored(
            output=json.dumps(log_likelihoods),
            filtered=chosen(log_likelihoods),
            reference=json.dumps([LETTERS[document["answer"]]]),
            metric=METRIC,
            score=float(accuracy),
        )

    return Sample(
        doc_id,
        instances,
        prompt.n_tokens,
        prompt.untruncated_tokens,
        prompt.truncated,
        None,
        0,
        score,
        prompt.bos_tokens,
        prompt.left_truncated,
    )


def chosen(log_likelihoods: Sequence[float]) -> str:
    """Letter of the most likely choice, the first among equals (as numpy.argmax)."""
    return LETTERS[max(range(len(log_likelihoods)), key=lambda i: log_likelihoods[i])]
