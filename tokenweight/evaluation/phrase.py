"""The tokens of one phrase with long and with short context (Table 1).

The long model reads one sequence, as long as its context at most; the scorer reads short windows of it, as for the PMI.
Where a phrase is given, the sequence ends with it if the text before is long enough: nothing is nearer than it need be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tokenweight.corpus.documents import Document, Kind
from tokenweight.corpus.encoding import label, resolve_kinds
from tokenweight.corpus.sources import documents
from tokenweight.corpus.token_texts import (
    MOST_TOKENS,
    Tokens,
    first_tokens_with_text,
    highest_span,
    place_of,
    span_around,
    text_of,
)
from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import Kept, Step, Unit, UnitRun
from tokenweight.evaluation.data import Task
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.perplexity import CorpusBenchmark
from tokenweight.evaluation.pmi import by_windows
from tokenweight.evaluation.rows import Row, sha256_text
from tokenweight.recipes.schema import Corpus, Evaluation
from tokenweight.recipes.schema import Phrase as Settings

SETTING = "--set evaluation.phrase"
TASKS = ("long_nll", "short_nll", "difference")  # of each token of the phrase; difference: |long - short|


class Phrase(CorpusBenchmark):
    name = "phrase"
    offered = ()
    tasks: ClassVar = {task: Task(metric=task) for task in TASKS}

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        return super().units(evaluation, context_tokens) if context_tokens > evaluation.pmi.short_tokens else []

    def corpus(self, evaluation: Evaluation) -> Corpus | None:
        return None if evaluation.phrase.file else evaluation.perplexity.corpus

    def raw_files(self, unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
        if not evaluation.phrase.file:
            return super().raw_files(unit, evaluation)
        return {"phrase.file": [read_text(evaluation.phrase)[0]]}

    def steps(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Kept) -> Iterator[Step]:
        """One step: a row of each token of the phrase for each unit. UserError: the text or its phrase cannot be used."""
        short_tokens, read = evaluation.pmi.short_tokens, by_windows(runs[0], evaluation.pmi, model)
        tokens, phrase, why = read_sequence(evaluation, model.lm.tokenizer, model.context_tokens)
        values = read(tokens.ids)
        difference = np.abs(values.long_nll - values.short_nll)
        if phrase is None:
            far = np.arange(len(difference)) >= values.first_window
            phrase, why = highest_span(np.where(far, difference, 0)), "round the largest difference of losses"
        phrase = range(max(phrase.start, 1), phrase.stop)  # the first token is not predicted
        measured = {"long_nll": values.long_nll, "short_nll": values.short_nll, "difference": difference}
        digest, made = sha256_text(json.dumps(tokens.ids)), dict[Unit, list[Row]]()
        for unit, kept in rows.items():
            kept.clear()  # one pass gives all: what an interrupted run left is from another one
            made[unit] = [
                Row(
                    doc_id=number,
                    prompt_sha256=digest,
                    n_prompt_tokens=token,  # what is before it in the long pass
                    reference=json.dumps([tokens.texts[token]]),
                    metric=unit.task,
                    score=float(measured[unit.task][token - 1]),
                )
                for number, token in enumerate(phrase)
            ]
        # A sentence on where the phrase is, for the table's notes.
        about = (
            f"The phrase is tokens {phrase.start} to {phrase.stop - 1} of the {len(tokens.ids)} that the long model "
            f"reads; the short windows have {short_tokens}. {f'It was chosen {why}.' if why else 'It was given.'}"
        )
        if phrase.start < short_tokens:
            about += f" It begins in the first {short_tokens} tokens, where the short context is as long."
        notes = {"tokens": [tokens.texts[token] for token in phrase], "about": about}
        yield Step(made, 1, 1, complete=dict.fromkeys(rows, notes))


def read_text(settings: Settings) -> tuple[Path, str]:
    """The given file and its text. UserError: it cannot be read, or does not hold the words."""
    path = Path(settings.file or "")
    if not path.is_file():
        raise UserError(
            f"phrase {path}: no such file; give the text of Table 1's phrase with {SETTING}.file=FILE, or another text "
            f'with its {SETTING}.words="..."'
        )
    text = text_of(path, "phrase")
    if settings.words and settings.words not in text:
        raise UserError(
            f"phrase {path}: does not contain {settings.words!r}; give words from the file with {SETTING}.words=..."
        )
    return path, text


def read_sequence(evaluation: Evaluation, tokenizer: Any, context_tokens: int) -> tuple[Tokens, range | None, str]:
    """What the long model reads, of the given text or the first validation document that has far context; the phrase, if it
    is known by now; and why a rule chose it."""
    settings, short_tokens = evaluation.phrase, evaluation.pmi.short_tokens
    if settings.file:
        candidates = iter([Document(settings.file, read_text(settings)[1])])
    else:
        candidates = documents(evaluation.perplexity.corpus, "validation")
    for document in candidates:
        if settings.words and settings.words in document.text:
            return *_ending_with(settings.words, document.text, tokenizer, context_tokens), ""
        tokens = first_tokens_with_text(tokenizer, document.text, context_tokens)
        if settings.words is None and len(tokens.ids) > short_tokens:
            return tokens, *_by_label(document, tokens, short_tokens)
    wanted = f"has {settings.words!r}" if settings.words else f"is longer than {short_tokens} tokens"
    raise UserError(f"phrase: no text {wanted}; give one with {SETTING}.file=FILE")


def _ending_with(phrase: str, text: str, tokenizer: Any, context_tokens: int) -> tuple[Tokens, range]:
    """As much of the text as the context holds, up to the phrase; of a short text, what follows as well."""
    tokens = first_tokens_with_text(tokenizer, text, 4 * len(text) + 8)  # all: no token is less than a byte
    front = len(list(takewhile(tokens.added.__contains__, range(len(tokens.ids)))))
    body, room = [index for index in range(len(tokens.ids)) if index not in tokens.added], context_tokens - front
    place = place_of(tokens.texts, phrase)
    if place is None or place[1] - place[0] >= min(MOST_TOKENS, room):
        raise UserError(f"phrase {phrase!r}: has too many tokens for a table; give a shorter one")
    start = max(0, body.index(place[1]) + 1 - room)
    kept = [*range(front), *body[start : start + room]]
    shown = range(kept.index(place[0]), kept.index(place[1]) + 1)
    return Tokens([tokens.ids[i] for i in kept], [tokens.texts[i] for i in kept], {}, whole_text=False), shown


def _by_label(document: Document, tokens: Tokens, short_tokens: int) -> tuple[range | None, str]:
    """The synthetic novel: round the fact that was last stated farthest back; other texts have no labels."""
    lengths = np.array([len(text) for text in tokens.texts])
    ends = np.cumsum(lengths)
    kinds, distances = label(document, ends - lengths, ends)
    kinds = resolve_kinds(kinds, distances, np.arange(len(kinds)), short_tokens)
    far = np.where(kinds == Kind.LONG_RECALL, distances, 0)
    if not far.any():
        return None, ""
    token = int(np.argmax(far))
    while token and far[token - 1] == far[token] - 1:  # to the first token of the fact: distances count on within it
        token -= 1
    why = f"round {tokens.texts[token].strip()!r}, the first token of a fact that was last stated {far[token]} tokens before"
    return span_around(token, len(tokens.ids)), why
