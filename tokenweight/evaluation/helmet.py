"""HELMET's tasks without a judge (Yen et al., 2025) on the user's copy of its data: recall, RAG, re-ranking, ICL (helmet.yaml).

Which samples are asked, their demonstrations, prompts without a chat template, cuts and metrics are those of its own code.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from math import ceil, log2, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import Prepared, Unit, columns_apart
from tokenweight.evaluation.data import Task, fault, is_text, json_objects, table
from tokenweight.evaluation.longbench import normalised
from tokenweight.evaluation.ruler.benchmark import string_match_all
from tokenweight.evaluation.samples import Classes, Scored, UsersBenchmark
from tokenweight.evaluation.tokens import TokenCounter, token_counter
from tokenweight.pipeline.experiment import Column
from tokenweight.pipeline.measures import TaskMean
from tokenweight.recipes.schema import Evaluation

if TYPE_CHECKING:
    import pandas as pd

QUESTIONS, SEED, SHOTS = 100, 42, 2
QUESTIONS_ICL = 500
CUTOFF = 10  # of NDCG
ENDS = ("parquet", "jsonl", "csv")
Json = dict[str, Any]


@contextmanager
def _read_as_helmets(file: Path) -> Iterator[None]:
    """What goes wrong with another layout, as a UserError."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise UserError(f"{file}: does not have HELMET's layout ({fault(error)}); give HELMET's own file") from None


@dataclass(frozen=True, kw_only=True)
class HelmetTask(Task):
    category: str
    template: str
    prefix: str  # of the answer
    file: str
    sizes: list[int]  # in the file's name, at each of LENGTHS
    fields: list[str]
    demos: str | None = None  # file of demonstrations
    asked: str = ""  # what a demonstration calls its question
    is_shared: bool = False  # demonstrations are of the same questions as the test
    log10_views: float | None = None  # only questions about less popular subjects
    first_line: bool = False  # an answer ends at a line break

    def files(self, root: Path, length_tokens: int) -> list[Path]:
        """Of the test, and of demonstrations where these have their own."""
        names = [self.file.format(size=self.sizes[LENGTHS.index(length_tokens)]), self.demos]
        return [root / name for name in names if name]

    def check(self, file: Path) -> None:
        """UserError where a file is not as HELMET has it, as far as its first row shows."""
        if (first := next(json_objects(file, *self.fields), None)) is None:
            raise UserError(f"evaluation.helmet.data: {file} is empty; give {Helmet.layout}")
        with _read_as_helmets(file):
            self.asked_of(first[1], [])

    def questions(self, files: list[Path], length_tokens: int) -> Iterator[tuple[Json, list[str]]]:
        """Of each sample in HELMET's order what fills the template, and what is expected."""
        file, *of_demos = files
        rows, demos = self.test_rows(file), [row for path in of_demos for row in self.rows(path)]
        every = {self.key(row) for row in rows} if self.is_shared else set()
        is_other = len(demos) > 2 * len(rows) and "qid" in self.fields  # demonstrations of no question of the test
        for row in rows:
            excluded = every if is_other or not every else {self.key(row)}
            yield self.asked_of(row, self.demonstrations(row, demos, excluded) if self.demos else [])

    def rows(self, file: Path) -> Iterator[Json]:
        rows = (row for _, row in json_objects(file, *self.fields))
        return (row for row in rows if self.log10_views is None or log10(row["s_pop"]) < self.log10_views)

    def key(self, row: Json) -> str:
        """What makes two rows the same question: files have it at several depths of its documents."""
        key: str = row[next(name for name in ("qid", "id", "question") if name in row)]
        return key

    def test_rows(self, file: Path) -> list[Json]:
        """The rows that HELMET draws: 100 questions, each at all depths; of recall 100 rows, in drawn order."""
        if not self.demos:
            rows = list(self.rows(file))
            return [rows[i] for i in np.random.default_rng(SEED).permutation(len(rows))[:QUESTIONS]]
        keys = sorted({self.key(row) for row in self.rows(file)})  # read twice: the longest are gigabytes
        drawn = set(random.Random(SEED).sample(keys, min(QUESTIONS, len(keys))))
        return [row for row in self.rows(file) if self.key(row) in drawn]

    def demonstrations(self, row: Json, demos: list[Json], excluded: Collection[str]) -> list[Json]:
        """Of two questions, drawn by the row's own: the same ones whichever its documents are."""
        left = [demo for demo in demos if self.key(demo) not in excluded]
        seed = int(sha256(self.key(row).encode()).hexdigest(), 16) % 2**31
        found = dict[str, Json]()
        for demo in (left[i] for i in np.random.default_rng(seed).permutation(len(left))):
            found.setdefault(self.key(demo), demo)
            if len(found) == SHOTS:
                break
        return list(found.values())

    def asked_of(self, row: Json, demos: list[Json]) -> tuple[Json, list[str]]:
        """What fills the template, and what is expected: answers, or of re-ranking "ID LABEL" of each relevant document."""
        if self.metric == "ndcg_at_10":
            if wrong := [c["id"] for c in row["ctxs"] if not re.fullmatch(r'"[0-9]+"', json.dumps(c["id"]))]:
                raise ValueError(f"id {wrong[0]!r} in `ctxs` is no text of digits, as ids in answers are")
            title = " (Title: {title})" if "title" in row["ctxs"][0] else ""
            passage, ranked = f"[ID: {{id}}] Document{title}: {{text}}", partial(sorted, key=lambda c: -c["label"])
            shown = [(demo["ctxs"], demo["query"], " > ".join(c["id"] for c in ranked(demo["ctxs"]))) for demo in demos]
            fields = {"context": _documents(passage, row["ctxs"]), "question": row["query"]}
            references = [f"{c['id']} {int(c['label'])}" for c in row["ctxs"] if int(c["label"]) > 0]
        elif self.demos:
            passage = "Document (Title: {title}): {text}"
            shown = [(demo["ctxs"], demo["question"], demo["answers"][0]) for demo in demos]
            fields, references = row | {"context": _documents(passage, row["ctxs"])}, _flat(row["answers"])
        else:
            passage, shown = "", [([], key, value) for key, value in row.get("demos", ())[:SHOTS]]
            fields, references = row, _flat(row.get("answer") or row.get("outputs"))
        texts = (f"{self.asked}: {question}\n{self.prefix} {answer}" for _, question, answer in shown)
        documents = (_documents(passage, of) + "\n\n" * bool(of) for of, *_ in shown)
        return fields | {"demos": "".join(f"{a}{b}\n\n" for a, b in zip(documents, texts, strict=True))}, references


@dataclass(frozen=True, kw_only=True)
class IclTask(HelmetTask):
    """In-context learning: texts with the numbers of their labels, which are shuffled anew for every question.

    `file`, `demos`: without an end, of :data:`ENDS`; `fields`: text and label; `sizes`: demonstrations at each length.
    """

    n_labels: int

    def files(self, root: Path, length_tokens: int) -> list[Path]:
        every = [[root / f"{name}.{end}" for end in ENDS] for name in (self.file, self.demos) if name]
        return [next((file for file in files if file.is_file()), files[0]) for files in every]

    def check(self, file: Path) -> None:
        self.labelled(file)

    def labelled(self, file: Path) -> list[tuple[str, int]]:
        """Texts and their labels. UserError: another layout."""
        try:
            columns = _read_table(file)
        except (OSError, ValueError):
            raise UserError(f"{file}: cannot be read as {file.suffix[1:]}; give it anew") from None
        if missing := [name for name in self.fields if name not in columns]:
            raise UserError(f"{file}: has no column {missing[0]!r}; expected {', '.join(self.fields)}")
        rows: list[tuple[str, int]] = list(zip(*(columns[name].tolist() for name in self.fields), strict=True))
        for number, (text, label) in enumerate(rows, start=1):
            if not is_text(text) or not isinstance(label, int) or not 0 <= label < self.n_labels:
                wanted = (
                    f"a text in {self.fields[0]!r} and a number from 0 to {self.n_labels - 1} in {self.fields[1]!r}"
                )
                raise UserError(f"{file} row {number}: has {text!r:.40} and {label!r:.40}; expected {wanted}")
        if len(rows) < 2:
            raise UserError(f"{file}: has fewer than two rows; give the data set's own")
        return rows

    def questions(self, files: list[Path], length_tokens: int) -> Iterator[tuple[Json, list[str]]]:
        test, train = self.labelled(files[0]), self.labelled(files[-1])
        if not self.demos:  # one file: a tenth of it is the test
            order = np.random.default_rng(SEED).permutation(len(train))
            first = ceil(len(train) / 10)
            test, train = [train[i] for i in order[:first]], [train[i] for i in order[first:]]
        if len(test) > QUESTIONS_ICL:
            test = [test[i] for i in np.random.default_rng(SEED).permutation(len(test))[:QUESTIONS_ICL]]
        shown = balanced(train, self.sizes[LENGTHS.index(length_tokens)])
        for text, label in test:
            numbers = list(range(self.n_labels))
            random.Random((int(sha256(text.encode()).hexdigest(), 16) + SEED) % 2**31).shuffle(numbers)
            context = "\n\n".join(f"{one}\n{self.prefix} {numbers[of_one]}" for one, of_one in shown)
            yield {"context": context, "question": text}, [str(numbers[label])]


def balanced(rows: list[tuple[str, int]], n: int) -> list[tuple[str, int]]:
    """`n` of them in rounds that have each label once, in random order; where a label has too few, some come again."""
    draws, by_label = random.Random(SEED), dict[int, list[tuple[str, int]]]()
    for row in rows:
        by_label.setdefault(row[1], []).append(row)
    rounds: list[list[tuple[str, int]]] = [[] for _ in range(ceil(n / len(by_label)))]
    for of_label in by_label.values():
        times, more = divmod(len(rounds), len(of_label))
        drawn = [row for size in (more, *[len(of_label)] * times) for row in draws.sample(of_label, size)]
        for one, row in zip(rounds, drawn, strict=True):
            one.append(row)
    for one in rounds:
        draws.shuffle(one)
    return [row for one in rounds for row in one][:n]


def _read_table(file: Path) -> pd.DataFrame:
    """What looks like a number, a date or nothing is a text, too."""
    import pandas as pd  # starts a thread: not where this module is imported, before a fork

    match file.suffix[1:]:
        case "parquet":
            return pd.read_parquet(file)
        case "jsonl":
            return pd.read_json(file, lines=True, dtype=False, convert_dates=False, encoding="utf-8-sig")
    return pd.read_csv(file, dtype={"text": str}, keep_default_na=False, index_col=False)


_TABLE = table("helmet")
LENGTHS: list[int] = _TABLE["lengths"]
TASKS = {name: (IclTask if "n_labels" in values else HelmetTask)(**values) for name, values in _TABLE["tasks"].items()}
FOLDERS: dict[str, list[str]] = {}  # of each category
for _task in TASKS.values():
    FOLDERS[_task.category] = list(dict.fromkeys([*FOLDERS.get(_task.category, ()), _task.file.partition("/")[0]]))


class Helmet(UsersBenchmark):
    name = "helmet"
    tasks = TASKS
    layout = "HELMET's unpacked `data` (a file of icl/ may also end in .jsonl or .csv)"

    def least_tokens(self, evaluation: Evaluation) -> int:
        return LENGTHS[0]

    def its_tasks(self, evaluation: Evaluation) -> dict[str, HelmetTask]:
        """Those of the categories that the user's directory has a folder of; where it has none, those of HELMET's own data."""
        data = evaluation.helmet.data
        here = {one for one, names in FOLDERS.items() if data and any((Path(data) / name).is_dir() for name in names)}
        here = here or FOLDERS.keys() - {"ICL"}
        return {name: task for name, task in TASKS.items() if task.category in here}

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        return [Unit(self.name, task, n) for n in LENGTHS if n <= context_tokens for task in self.its_tasks(evaluation)]

    def raw_files(self, unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
        spec, root = TASKS[unit.task], self.users_dir(evaluation)
        return {"helmet.data": self.present(spec.files(root, unit.length_tokens or 0))}

    def check_data(self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path | None = None) -> None:
        for file in self.raw_files(unit, evaluation)["helmet.data"]:
            TASKS[unit.task].check(file)

    def columns(self, column: Column, evaluation: Evaluation, context_tokens: int) -> tuple[list[Column], list[str]]:
        """Of each category a column at each length: the mean over its tasks. Notes: how they are scored, what is left out."""
        tasks, lengths = self.its_tasks(evaluation), [n for n in LENGTHS if n <= context_tokens]
        categories = dict.fromkeys(task.category for task in tasks.values())
        members = {one: tuple(name for name, task in tasks.items() if task.category == one) for one in categories}
        measures = {
            (f"HELMET {one}", f"{n // 1024}k"): TaskMean(benchmark=self.name, length_tokens=n, tasks=members[one])
            for one in categories
            for n in lengths
        }
        words = (dict.fromkeys(_TABLE["metrics"][TASKS[name].metric] for name in members[one]) for one in categories)
        scores = (f"{one} by {' and '.join(by)}" for one, by in zip(categories, words, strict=True))
        notes, place = [f"HELMET in percent: {', '.join(scores)}."], Path(evaluation.helmet.data or "DIR").name
        for one in (one for one in FOLDERS if one not in categories):
            notes.append(f"HELMET's {one} left out: no {'/, '.join(FOLDERS[one])}/ in {place}.")
        headline = f"HELMET {next(iter(categories))}", f"{max(lengths, default=0) // 1024}k"
        return columns_apart(column, measures, headline), notes

    def score(self, task: str, output: str, references: list[str], classes: Classes, evaluation: Evaluation) -> Scored:
        answer = output.partition("\n")[0] if TASKS[task].first_line else output
        return Scored(answer, METRICS[TASKS[task].metric](answer, references, TASKS[task].prefix))

    def prepare(self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path, context_tokens: int) -> Prepared:
        """Prompts of the unit's length; a context that is too long loses its end."""
        spec, counter, length = TASKS[unit.task], token_counter(tokenizer_dir), unit.length_tokens or 0
        files, made = self.raw_files(unit, evaluation)["helmet.data"], list[dict[str, Any]]()
        with _read_as_helmets(files[0]):
            asked = islice(spec.questions(files, length), evaluation.helmet.samples)
            for doc_id, (fields, references) in enumerate(asked):
                prompt, n_tokens, untruncated = _cut(spec, fields, length - spec.new_tokens, counter)
                own = {"doc_id": doc_id, "prompt": prompt, "references": references, "max_new_tokens": spec.new_tokens}
                made.append(own | {"n_prompt_tokens": n_tokens, "untruncated_tokens": untruncated})
        if not made:
            raise UserError(f"{files[0]}: has no sample of {unit.task}; give HELMET's own file")
        return made, {}


def _documents(passage: str, documents: list[Json]) -> str:
    return "\n\n".join(passage.format(**document) for document in documents)


def _flat(answers: Any) -> list[str]:
    """Answers are a text, a list of them, or a list of lists."""
    return [answers] if isinstance(answers, str) else [text for answer in answers for text in _flat(answer)]


def _cut(spec: HelmetTask, fields: Json, budget_tokens: int, counter: TokenCounter) -> tuple[str, int, int]:
    """The prompt, its tokens, and its tokens before the end of `context` was cut, both with BOS."""
    ids, context, cut, untruncated = list[int](), fields["context"], 0, 0
    while True:
        prompt = f"{spec.template}\n{spec.prefix}".format(**fields | {"context": context})
        n_tokens = len(counter.encode(prompt)) + counter.special_tokens
        untruncated = untruncated or n_tokens
        if n_tokens <= budget_tokens:
            return prompt, n_tokens, untruncated
        ids, cut = ids or counter.encode(context), cut + n_tokens - budget_tokens
        if cut >= len(ids):
            raise ValueError(f"more than {budget_tokens} tokens without its context")
        context = counter.decode(ids[:-cut]).rstrip("\ufffd")  # half a character


# --- Metrics ---


def substring_exact_match(output: str, references: list[str], prefix: str) -> float:
    """1 if a reference is in the answer or in its first line, all by SQuAD's normalisation."""
    texts = [" ".join(normalised(text)) for text in (prefix + output, _first_line(output, prefix))]
    return float(any(" ".join(normalised(reference)) in text for reference in references for text in texts))


def exact_match(output: str, references: list[str], prefix: str) -> float:
    """1 if the answer's first line is a reference, both by SQuAD's normalisation."""
    return float(any(normalised(_first_line(output, prefix)) == normalised(reference) for reference in references))


def _first_line(output: str, prefix: str) -> str:
    """Without the prefix, which some models say again."""
    return re.sub(f"^{re.escape(prefix)}", "", output.partition("\n")[0].strip(), flags=re.IGNORECASE)


def ruler_recall(output: str, references: list[str], prefix: str) -> float:
    return string_match_all(output, references)


def ndcg_at_10(output: str, references: list[str], prefix: str) -> float:
    """NDCG@10 of the longest run of "1 > 2 > 3" by trec_eval's formula (gain is the label), to five digits as HELMET has it."""
    text = re.sub(r"[\[\]:]", "", output).lower().replace("id", "")
    longest = max((found.group() for found in re.finditer(r"\d+(?:\s*>\s*\d+)*", text)), key=len, default="")
    ranked = dict.fromkeys(number.strip() for number in longest.split(">"))
    labels = {id: int(label) for id, label in (reference.rsplit(" ", 1) for reference in references)}

    def gain(of: list[int]) -> float:
        return sum(label / log2(rank) for rank, label in enumerate(of[:CUTOFF], start=2))

    ideal = gain(sorted(labels.values(), reverse=True))
    return round(gain([labels.get(id, 0) for id in ranked]) / ideal, 5) if ideal else 0.0


METRICS: dict[str, Callable[[str, list[str], str], float]] = {
    metric.__name__: metric for metric in (substring_exact_match, exact_match, ruler_recall, ndcg_at_10)
}
