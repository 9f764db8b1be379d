"""The tokens of one phrase with long and with short context (Table 1).

The long model reads one sequence, as long as its context at most; the scorer reads short windows of it, as for the PMI.
Where a phrase is given, the sequence ends with it if the text before is long enough: nothing is nearer than it need be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenweight.corpus.documents import Document, Kind
from tokenweight.corpus.encoding import label, resolve_kinds
from tokenweight.corpus.files import decode
from tokenweight.corpus.sources import documents
from tokenweight.corpus.token_texts import (
    MOST_TOKENS,
    Tokens,
    first_tokens_with_text,
    highest_span,
    place_of,
    span_around,
)
from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.benchmark import HubData, Kept, Step, Unit, UnitRun
from tokenweight.evaluation.perplexity import CorpusBenchmark
from tokenweight.evaluation.pmi import by_windows
from tokenweight.evaluation.rows import Row, sha256_text
from tokenweight.recipes.schema import Evaluation
from tokenweight.recipes.schema import Phrase as Settings

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel

SETTING = "--set evaluation.phrase"
TASKS = ("long_nll", "short_nll", "difference")  # of each token of the phrase; difference: |long - short|


class Phrase(CorpusBenchmark):
    name = "phrase"
    texts = "phrases"

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        return [Unit(self.name, task) for task in TASKS] if context_tokens > evaluation.pmi.short_tokens else []

    def raw_files(self, unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
        file = evaluation.phrase.file
        return {"phrase.file": [Path(file)]} if file else super().raw_files(unit, evaluation)

    def hub(self, evaluation: Evaluation) -> HubData | None:
        return None if evaluation.phrase.file else super().hub(evaluation)

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """Its own, the windows of the PMI, and the corpus of perplexity where no text is given."""
        own = {"phrase": evaluation.phrase, "pmi": evaluation.pmi.model_copy(update={"scorer_model": None})}
        return own if evaluation.phrase.file else own | self.corpus_settings(evaluation)

    def total(self, evaluation: Evaluation) -> int:
        return 1

    def steps(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Kept) -> Iterator[Step]:
        """One step: a row of each token of the phrase for each unit. UserError: the text or its phrase cannot be used."""
        read = by_windows(runs[0], evaluation.pmi, model)
        sequence = read_sequence(evaluation, model.lm.tokenizer, model.context_tokens)
        values = read(sequence.ids)
        difference = np.abs(values.long_nll - values.short_nll)
        if not np.isfinite(difference).all():
            raise StageError(
                "phrase: a token of its sequence has an NLL that is not finite; the checkpoint may be damaged"
            )
        phrase, why = sequence.phrase, sequence.why
        if phrase is None:
            far = np.arange(len(difference)) >= values.first_window
            phrase, why = highest_span(np.where(far, difference, 0)), "round the largest difference of losses"
        phrase = range(max(phrase.start, 1), phrase.stop)  # the first token is not predicted
        measured = {"long_nll": values.long_nll, "short_nll": values.short_nll, "difference": difference}
        for kept in rows.values():
            kept.clear()  # one pass gives all: what an interrupted run left is from another one
        notes = {
            "tokens": [sequence.texts[token] for token in phrase],
            "about": _about(phrase, len(sequence.ids), why, evaluation.pmi.short_tokens),
        }
        digest = sha256_text(json.dumps(sequence.ids))
        made = {
            unit: [
                Row(
                    doc_id=number,
                    prompt_sha256=digest,
                    n_prompt_tokens=token,  # what is before it in the long pass
                    reference=json.dumps([sequence.texts[token]]),
                    metric=unit.task,
                    score=float(measured[unit.task][token - 1]),
                )
                for number, token in enumerate(phrase)
            ]
            for unit in rows
        }
        yield Step(made, 1, notes)


def text_problem(settings: Settings) -> str | None:
    """What keeps the given file from being read, in one line that says what to do; None where nothing does."""
    path = Path(settings.file or "")
    if not path.is_file():
        return (
            f"phrase {path}: no such file; give the text of Table 1's phrase with {SETTING}.file=FILE, or another text "
            f'with its {SETTING}.words="..."'
        )
    try:
        text = decode(path, path.read_bytes())
    except OSError as error:
        return f"phrase {path}: cannot be read ({error.strerror}); give a text file that can"
    except UserError as error:
        return str(error)
    if settings.words and settings.words not in text:
        return f"phrase {path}: has no {settings.words!r}; give words as the file has them with {SETTING}.words=..."
    return None


@dataclass(frozen=True)
class PhraseSequence:
    """What the long model reads: ids and the text of each token, both of length N; the phrase, if it is known by now."""

    ids: list[int]
    texts: list[str]
    phrase: range | None
    why: str = ""  # of a phrase that a rule chose


def read_sequence(evaluation: Evaluation, tokenizer: Any, context_tokens: int) -> PhraseSequence:
    """The sequence of the given text, or of the first validation document that has far context."""
    settings, short_tokens = evaluation.phrase, evaluation.pmi.short_tokens
    if settings.file:
        if problem := text_problem(settings):
            raise UserError(problem)
        path = Path(settings.file)
        candidates = iter([Document(settings.file, decode(path, path.read_bytes()))])
    else:
        candidates = documents(evaluation.perplexity.corpus, "validation")
    for document in candidates:
        if settings.words and settings.words in document.text:
            return _ending_with(settings.words, document.text, tokenizer, context_tokens)
        tokens = first_tokens_with_text(tokenizer, document.text, context_tokens)
        if settings.words is None and len(tokens.ids) > short_tokens:
            return _by_label(document, tokens, short_tokens)
    wanted = f"has {settings.words!r}" if settings.words else f"is longer than {short_tokens} tokens"
    raise UserError(f"phrase: no text {wanted}; give one with {SETTING}.file=FILE")


def _ending_with(phrase: str, text: str, tokenizer: Any, context_tokens: int) -> PhraseSequence:
    """As much of the text as the context holds, up to the phrase; of a short text, what follows as well."""
    tokens = first_tokens_with_text(tokenizer, text, 4 * len(text) + 8)  # all: no token is less than a byte
    front = len(list(takewhile(lambda index: index in tokens.added, range(len(tokens.ids)))))
    body = [index for index in range(len(tokens.ids)) if index not in tokens.added]
    place = place_of(tokens.texts, phrase)
    if place is None or place[1] - place[0] >= min(MOST_TOKENS, context_tokens - front):
        raise UserError(f"phrase {phrase!r}: has too many tokens for a table; give a shorter one")
    first, last = place
    start = max(0, body.index(last) + 1 - (context_tokens - front))
    kept = [*range(front), *body[start : start + context_tokens - front]]
    shown = range(kept.index(first), kept.index(last) + 1)
    return PhraseSequence([tokens.ids[i] for i in kept], [tokens.texts[i] for i in kept], shown)


def _by_label(document: Document, tokens: Tokens, short_tokens: int) -> PhraseSequence:
    """The synthetic novel: round the fact that was last stated farthest back; other texts have no labels."""
    plain = PhraseSequence(tokens.ids, tokens.texts, None)
    if not document.spans:
        return plain
    ends = np.cumsum([len(text) for text in tokens.texts])
    starts = ends - [len(text) for text in tokens.texts]
    kinds, distances = label(document, starts, ends)
    kinds = resolve_kinds(kinds, distances, np.arange(len(kinds)), short_tokens)
    far = np.where(kinds == Kind.LONG_RECALL, distances, 0)
    if not far.any():
        return plain
    token = int(np.argmax(far))
    while token and far[token - 1] == far[token] - 1:  # to the first token of the fact: distances count on within it
        token -= 1
    why = f"round {tokens.texts[token].strip()!r}, the first token of a fact that was last stated {far[token]} tokens before"
    return PhraseSequence(tokens.ids, tokens.texts, span_around(token, len(tokens.ids)), why)


def _about(phrase: range, n_tokens: int, why: str, short_tokens: int) -> str:
    """A sentence on where the phrase is, for the table's notes."""
    chosen = f"It was chosen {why}." if why else "It was given."
    near = (
        f" It begins in the first {short_tokens} tokens, where the short context is as long." if phrase.start < short_tokens
        else ""
    )  # fmt: skip
    return (
        f"The phrase is tokens {phrase.start} to {phrase.stop - 1} of the {n_tokens} that the long model reads; the short "
        f"windows have {short_tokens}. {chosen}{near}"
    )
