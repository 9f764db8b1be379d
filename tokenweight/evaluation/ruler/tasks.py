"""The 13 tasks of RULER, as in the 2024 program (tasks.yaml), and the texts that their samples are made of.

Those are a haystack, SQuAD and HotpotQA, from local files or shipped, sentences of such prose, and wonderwords' lists.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from tokenweight.errors import UserError
from tokenweight.evaluation.data import Task, smoke_eval_dir, table

Profile = Literal["paper", "official-2024"]
Source = Literal["haystack", "squad", "hotpotqa"]


@dataclass(frozen=True, kw_only=True)
class RulerTask(Task):
    """One of the 13 tasks; the fields from `hidden_in` on are those of a needle in a haystack (Appendix C, Retrieval)."""

    name: str
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
TASKS = {
    name: RulerTask(name=name, **_TABLE["families"][values["family"]], **values)
    for name, values in _TABLE["tasks"].items()
}


@dataclass(frozen=True)
class Sources:
    """Where the texts are. None: the small shipped ones."""

    haystack: Path | str | None = None  # directory of .txt, or JSON with `text`
    squad: Path | str | None = None  # SQuAD dev-v2.0 JSON
    hotpotqa: Path | str | None = None  # HotpotQA dev-distractor JSON

    def path(self, name: Source) -> Path:
        """The file or directory of that name, or the shipped one."""
        shipped = "haystack.txt" if name == "haystack" else f"{name}.json"
        return Path(getattr(self, name) or smoke_eval_dir() / "ruler" / shipped)

    def files(self, task: RulerTask) -> list[Path]:
        """Raw files that a task's samples are made of, part of the data's identity. UserError: one does not exist."""
        return _files(self.path(task.source), task.source) if task.source else []


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
        data = _json(file, "haystack")
        if not isinstance(data, dict) or not isinstance(data.get("text"), str):
            raise UserError(f"ruler.haystack: {file} has no field `text`; give a JSON object with the essays in `text`")
        return str(data["text"])
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"ruler.haystack: {file} is not UTF-8 (byte {error.start}); convert it") from None


@dataclass(frozen=True)
class Question:
    """One question, its answers, and the documents (by index) that belong to it."""

    query: str
    answers: list[str]
    own: list[int]  # come with it
    gold: list[int]  # of these, hold the answer
    related: list[int]  # the same article's others


Questions = tuple[tuple[Question, ...], tuple[str, ...]]


@lru_cache(maxsize=4)
def questions(dataset: Literal["squad", "hotpotqa"], path: Path) -> Questions:
    """All answerable questions in the file's order, and all distinct documents sorted. UserError: another schema."""
    (file,) = _files(path, dataset)
    data = _json(file, dataset)
    try:
        return _squad(data) if dataset == "squad" else _hotpotqa(data)
    except (KeyError, TypeError, ValueError) as error:
        what = f"field {error}" if isinstance(error, KeyError) else "another structure"
        raise UserError(
            f"ruler.{dataset}: {path} is not in the official schema ({what}); give the published JSON"
        ) from None


def _squad(data: Any) -> Questions:
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
    return tuple(found), tuple(documents)


def _hotpotqa(data: Any) -> Questions:
    documents = sorted({f"{title}\n{''.join(sentences)}" for entry in data for title, sentences in entry["context"]})
    index = {document: i for i, document in enumerate(documents)}
    found = []
    for entry in data:
        titled = [(title, index[f"{title}\n{''.join(sentences)}"]) for title, sentences in entry["context"]]
        supporting = {title for title, _ in entry.get("supporting_facts", [])}
        gold = [i for title, i in titled if title in supporting]
        own = [i for _, i in titled]
        found.append(Question(entry["question"], [entry["answer"]], own, gold or own, []))
    return tuple(found), tuple(documents)


def _json(path: Path, source: Source) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"ruler.{source}: {path} cannot be read as JSON ({error}); give the published file") from None


# --- English prose split into sentences ---
# The 2024 program splits with NLTK's English Punkt model (Kiss and Strunk, 2006), whose data have to be downloaded.
# These are its rules for ends of sentences with its abbreviations and sentence starters, over a small table of our own
# in place of its learned capitalisation counts (sentences.yaml): no download, the same cuts in every process. Measured
# against NLTK 3.10 with its data: 3,296 of 3,297 cuts agree in the first 60,000 words of Bleak House (all where official
# samples are known), 97 % over five other novels (that version also cuts at curly quotes, which the 2024 rules did not).

_WORDS = {name: frozenset(words.split()) for name, words in table("ruler/sentences").items()}
_ABBREVIATIONS = _WORDS["abbreviations"]
_BEGIN_SENTENCES = _WORDS["starters"] | _WORDS["never_capitalised"]
_END = re.compile(r"""[.?!](?=[)";}\]*:@'({\[!?]|\s+\S)""")
_BOUNDARY = re.compile(r"""[\s("`{\[:;&#*@)}\],?!]|--""")
_CLOSING = re.compile(r"""\s*["')\]}]+?(?:\s+|(?=--)|$)""")
_NUMBER = re.compile(r"-?[.,]?\d[\d,.\-]*")
_ELLIPSIS = re.compile(r"\.\.+$")
# Where the next chunk holds an end of its own, the program cuts before it as well.
_END_INSIDE = re.compile(r"""\s+\S*?[^\s.?!][.?!]+[)";}\]*:@'({\[!?]""")
_NEXT = re.compile(r"""\s*(--+|\.\.+|[^\s("`{\[:;&#*@)}\]\-,]+|\S)""")


@lru_cache(maxsize=64)
def sentences(text: str) -> tuple[str, ...]:
    """Sentences of `text` in order, without the white space between them."""
    cuts = list(_cuts(text))
    found = [text[start:end].strip() for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return tuple(sentence for sentence in found if sentence)


def _cuts(text: str) -> Iterator[int]:
    """Ends of sentences, closing quotes and brackets included."""
    last = 0
    for match in _END.finditer(text):
        end = match.end()
        if end <= last or not _ends_sentence(text, end):
            continue
        closing = _CLOSING.match(text, end)
        last = closing.end() if closing else end
        yield last


def _ends_sentence(text: str, end: int) -> bool:
    if text[end - 1] != "." or _END_INSIDE.match(text, end):
        return True
    chunk = text[max(text.rfind(" ", 0, end), text.rfind("\n", 0, end)) + 1 : end - 1]
    word = _BOUNDARY.split(chunk)[-1].lstrip("-") + "."
    stem = word[:-1].lower()
    following = _NEXT.match(text, end)
    after = following.group(1) if following else ""
    capital, plain = after[:1].isupper(), after.lower().rstrip(".")
    begins_sentence = capital and plain in _BEGIN_SENTENCES  # it is capitalised only because a sentence begins with it
    if _ELLIPSIS.search(word):
        return begins_sentence
    initial, number = len(stem) == 1 and stem.isalpha(), _NUMBER.fullmatch(stem) is not None
    if stem in _ABBREVIATIONS or stem.rpartition("-")[2] in _ABBREVIATIONS:
        return not initial and begins_sentence
    if initial or number:
        lower = after[:1].islower() or after in (";", ":", ",", ".", "!", "?")
        known = plain in _WORDS["small_words"] or plain in _BEGIN_SENTENCES or plain in single_words()
        return not (lower or (initial and capital and not known))
    return True


def _list(name: str) -> list[str]:
    from wonderwords import random_word

    words: list[str] = random_word._get_words_from_text_file(name)  # as the official program reads them
    return words


@cache
def single_words() -> frozenset[str]:
    """All nouns, adjectives and verbs: the vocabulary of common words extraction."""
    return frozenset({*_list("nounlist.txt"), *_list("adjectivelist.txt"), *_list("verblist.txt")})


class AdjectiveNouns:
    """sorted({f"{adjective}-{noun}"}), some six million keys, without making them.

    Sorted order is adjective by adjective, except where one adjective continues another after a hyphen
    (old, old-fashioned): such a block is merged in full.
    """

    def __init__(self, adjectives: Sequence[str], nouns: Sequence[str]) -> None:
        every = sorted(set(nouns))
        self._blocks: list[tuple[str, list[str]]] = []  # beginning of keys, and their sorted ends
        for stem in sorted(f"{adjective}-" for adjective in set(adjectives)):
            if self._blocks and stem.startswith(self._blocks[-1][0]):
                first, ends = self._blocks.pop()
                more = (stem.removeprefix(first) + noun for noun in every)
                self._blocks.append((first, sorted({*ends, *more})))
            else:
                self._blocks.append((stem, every))
        self._starts = list(accumulate((len(ends) for _, ends in self._blocks), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> str:
        at = bisect_right(self._starts, index) - 1
        first, ends = self._blocks[at]
        return first + ends[index - self._starts[at]]


@cache
def needle_keys() -> AdjectiveNouns:
    """The keys of needles, e.g. "wry-rainbow"."""
    return AdjectiveNouns(_list("adjectivelist.txt"), _list("nounlist.txt"))
