"""NoLiMa (Modarressi et al., 2025) on the user's copy of its data: a needle that shares no word with the question (nolima.yaml).

Needles, names, places in the haystack and the metric are those of its own code, books in the order of their numbers. The
prompt is its user's message, without chat template and system message.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tokenweight.corpus.files import decode, json_of
from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import Prepared, Unit, columns_apart
from tokenweight.evaluation.data import Task, fault, table
from tokenweight.evaluation.samples import Classes, Scored, UsersBenchmark
from tokenweight.evaluation.tokens import TokenCounter, token_counter
from tokenweight.pipeline.experiment import Column
from tokenweight.pipeline.measures import Measure, SampleMean, TaskMean
from tokenweight.recipes.schema import Evaluation

_TABLE = table("nolima")
LENGTHS: list[int] = _TABLE["lengths"]
SEED = 42
DEPTHS = np.linspace(0, 100, _TABLE["depths"]) / 100
ROOM_TOKENS = 256  # of template, question and needle


@dataclass(frozen=True)
class Trial:
    """A needle in a book."""

    needle: str
    question: str
    answers: list[str]
    template: str
    book: int
    depth: float  # 0: the beginning, 1: the end


class Nolima(UsersBenchmark):
    name = "nolima"
    tasks: ClassVar = dict.fromkeys(("onehop", "twohop"), Task(metric="contains", new_tokens=192))
    files = ("needlesets/needle_set.json", *(f"haystack/rand_shuffle/rand_book_{n}.txt" for n in range(1, 6)))
    layout = "NoLiMa's directory with needlesets/ and haystack/"

    def least_tokens(self, evaluation: Evaluation) -> int:
        return LENGTHS[0] + ROOM_TOKENS + evaluation.nolima.max_new_tokens

    def new_tokens(self, task: str, evaluation: Evaluation) -> int:
        return evaluation.nolima.max_new_tokens

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        room = context_tokens - ROOM_TOKENS - evaluation.nolima.max_new_tokens
        return [Unit(self.name, task, n) for n in LENGTHS if n <= room for task in self.tasks]

    def raw_files(self, unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
        return {"nolima.data": self.present(self.users_dir(evaluation) / name for name in self.files)}

    def check_data(self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path | None = None) -> None:
        needles, *books = self.raw_files(unit, evaluation)["nolima.data"]
        trials(needles, unit.task)
        for book in books if tokenizer_dir else ():
            for depth in DEPTHS:
                _place(book, unit.length_tokens or 0, depth, token_counter(tokenizer_dir))

    def columns(self, column: Column, evaluation: Evaluation, context_tokens: int) -> tuple[list[Column], list[str]]:
        """Accuracy of all samples at each length, and of each task at the longest."""
        lengths = sorted({unit.length_tokens or 0 for unit in self.units(evaluation, context_tokens)})
        labels = {n: f"{n // 1000}k" if n >= 1000 else str(n) for n in lengths}
        measures: dict[tuple[str, str], Measure]
        measures = {("NoLiMa", labels[n]): SampleMean(benchmark=self.name, length_tokens=n) for n in lengths}
        for task, n in ((task, n) for task in self.tasks for n in lengths[-1:]):
            measures["NoLiMa", f"{labels[n]} {task}"] = TaskMean(benchmark=self.name, length_tokens=n, tasks=(task,))
        return columns_apart(column, measures, ("NoLiMa", labels[lengths[-1]] if lengths else "")), []

    def score(self, task: str, output: str, references: list[str], classes: Classes, evaluation: Evaluation) -> Scored:
        return Scored(output, float(any(reference in output for reference in references)))

    def prepare(self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path, context_tokens: int) -> Prepared:
        """Of all trials `samples`, drawn by a fixed seed."""
        needles, *books = self.raw_files(unit, evaluation)["nolima.data"]
        found, counter, settings = trials(needles, unit.task), token_counter(tokenizer_dir), evaluation.nolima
        asked = sorted(np.random.default_rng(SEED).permutation(len(found))[: settings.samples])
        made = []
        for doc_id, trial in enumerate(found[i] for i in asked):
            haystack = placed(books[trial.book], trial.needle, unit.length_tokens or 0, trial.depth, counter)
            prompt = trial.template.format(haystack=haystack, question=trial.question)
            n_tokens = len(counter.encode(prompt)) + counter.special_tokens
            own = {"doc_id": doc_id, "prompt": prompt, "references": trial.answers, "n_prompt_tokens": n_tokens}
            made.append(own | {"max_new_tokens": settings.max_new_tokens})
        return made, {}


def trials(file: Path, task: str) -> list[Trial]:
    """All of a task: each book, question and set of words at each depth, the name drawn anew. UserError: another layout."""
    found = []
    try:
        entries = json_of(file)
        asked = [
            (entry, question, test["input_args"], test.get("gold_answers", []))
            for entry in entries
            for kind, question in entry["questions"].items()
            for test in entry["tests"].values()
            if kind.startswith(task)
        ]
        for book, (entry, question, words, answers) in ((n, one) for n in range(5) for one in asked):
            names = np.random.RandomState(SEED + int(entry["id"][:4]) + book)  # NumPy's old stream, which is frozen
            for depth in DEPTHS:
                fill = {"{" + str(number) + "}": word for number, word in enumerate(words, start=1)}
                if has_name := "{CHAR}" in entry["needle"]:
                    fill["{CHAR}"] = str(names.choice(entry["character_set"]))
                needle, filled = (_filled(text, fill) for text in (entry["needle"], question))
                gold = [fill["{CHAR}"]] if has_name else list(answers)
                found.append(Trial(needle, filled, gold, entry.get("task_template", _TABLE["template"]), book, depth))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{file}: does not have NoLiMa's layout ({fault(error)}); give NoLiMa's own needle_set.json"
        ) from None
    if not found:
        raise UserError(f"{file}: has no {task} question; give NoLiMa's own needle_set.json")
    return found


def _filled(text: str, fill: dict[str, str]) -> str:
    for place, word in fill.items():
        text = text.replace(place, word)
    return text


@lru_cache(maxsize=5)
def _book(file: Path, counter: TokenCounter) -> tuple[list[int], NDArray[np.int64]]:
    """Its tokens, and where a needle may be: at the beginning, and at each token with a line break."""
    ids = counter.encode(decode(file, file.read_bytes()))
    breaks = {id for id in set(ids) if "\n" in counter.decode([id])}
    return ids, np.array([0, *(i for i, id in enumerate(ids) if id in breaks)])


def _place(file: Path, length_tokens: int, depth: float, counter: TokenCounter) -> tuple[int, int]:
    """The first token of a book that is shown, and the line break of the needle: the first at least as deep. UserError: too
    short."""
    ids, places = _book(file, counter)
    deep = places[places / (length_tokens + 1) - depth >= 0]
    start = int(deep[0]) - int(np.round(length_tokens * depth)) if len(deep) else 0
    if not len(deep) or start + length_tokens > len(ids):
        raise UserError(
            f"{file}: {len(ids)} tokens do not fill {length_tokens} at depth {depth:.2f}; give NoLiMa's own"
        )
    return start, int(deep[0])


def placed(file: Path, needle: str, length_tokens: int, depth: float, counter: TokenCounter) -> str:
    """`length_tokens` of a book with the needle at a line break. UserError: too short."""
    start, place = _place(file, length_tokens, depth, counter)
    ids, _ = _book(file, counter)
    before, after = counter.decode(ids[start : place + 1]), counter.decode(ids[place + 1 : start + length_tokens])
    return f"{before[: max(before.rfind(chr(10)), 0)]} {needle}\n{after}"
