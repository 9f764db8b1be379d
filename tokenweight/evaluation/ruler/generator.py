"""Generate RULER samples: how each family of tasks draws one of a given size (Appendix C), any task at any length."""

import math
import string
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tokenweight.errors import UserError, choose
from tokenweight.evaluation.ruler.sizing import Draft, Draws, Family, draw_fitting, find_size, scan
from tokenweight.evaluation.ruler.tasks import (
    TASKS,
    Profile,
    Sources,
    haystack_words,
    needle_keys,
    questions,
    sentences,
    single_words,
    source_path,
)
from tokenweight.evaluation.tokens import token_counter
from tokenweight.progress import counted

SHORTEST_TOKENS = 512
NEEDLE = "One of the special magic {type_needle_v} for {key} is: {value}."
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
_DEPTHS_PERCENT = [int(d) for d in np.round(np.linspace(0, 100, num=40, endpoint=True))]
HOPS = 4
DEMONSTRATION_TOKENS = 500  # the official bound on the demonstration of variable tracking, its generation included
COMMON = 10  # common words that are asked for
ALPHA = 2.0  # of the zeta distribution that coded words are drawn by
_ZETA = math.pi**2 / 6  # zeta(ALPHA)
_CODED_LETTERS = 6


class NeedleInHaystack(Family):
    """Retrieval. Draws samples of `size` haystack units: words of an essay, noise sentences, or needles."""

    def open(self, samples: int, sources: Sources) -> None:
        task = self.task
        self._words = haystack_words(source_path("haystack", sources)) if task.source else ()
        if task.hidden_in == "essay":
            self.step, self.minimum = 500, 40
            self.maximum = len(self._words) if self.official else None  # the 2024 program stops where its text ends
        else:
            self.step, self.minimum = (25 if self.length_tokens >= 4096 else 5), task.keys * task.values_per_key
        self.first_size = self.step

    def draw(self, index: int, size: int) -> Draft:
        task = self.task
        made = [
            (self._make(task.key_type), [self._make(task.value_type) for _ in range(task.values_per_key)])
            for _ in range(task.keys)
        ]
        hidden = self.draws.shuffled([self._needle(key, value) for key, values in made for value in values])
        context = self._essay(hidden, size) if task.hidden_in == "essay" else self._lines(hidden, size)
        asked = [made[i] for i in self.draws.python.sample(range(task.keys), task.queries)]
        return self._asked(context, [key for key, _ in asked], [value for _, values in asked for value in values])

    def _make(self, kind: str) -> str:
        if kind == "numbers":
            return str(self.draws.python.randint(10**6, 10**7 - 1))
        if kind == "words":
            return self.draws.python.choice(needle_keys(self.profile))
        return str(uuid.UUID(int=self.draws.python.getrandbits(128), version=4))

    def _needle(self, key: str, value: str) -> str:
        return NEEDLE.format(type_needle_v=self.task.value_type, key=key, value=value)

    def _essay(self, hidden: list[str], size: int) -> str:
        words = self._words
        if not self.official and size > len(words):
            words = words * (size // len(words) + 1)
        document = sentences(" ".join(words[:size]).strip())
        depths = self.draws.python.sample(_DEPTHS_PERCENT, len(hidden))
        cuts = sorted(int(len(document) * (depth / 100)) for depth in depths)
        parts = []
        for start, end, needle in zip([0, *cuts], cuts, hidden, strict=False):
            parts += [" ".join(document[start:end]), needle]
        return " ".join([*parts, " ".join(document[cuts[-1] :])])

    def _lines(self, hidden: list[str], size: int) -> str:
        task = self.task
        if task.hidden_in == "repeat":
            lines = [NOISE] * size
        else:
            lines = [self._needle(self._make(task.key_type), self._make(task.value_type)) for _ in range(size)]
        places = sorted(self.draws.python.sample(range(size), len(hidden)), reverse=True)
        for place, needle in zip(places, hidden, strict=True):
            lines.insert(place, needle)
        return "\n".join(lines)

    def _asked(self, context: str, queries: list[str], answers: list[str]) -> Draft:
        query = ", ".join(queries[:-1]) + ", and " + queries[-1] if len(queries) > 1 else queries[0]
        texts, values = [self.task.template, self.task.prefix], str(self.task.value_type)
        if len(answers) == 1:  # in the singular
            texts = [text.replace("Some", "A").replace("are all", "is").replace("are", "is") for text in texts]
            values = values[:-1]
        question, prefix = (text.format(type_needle_v=values, context=context, query=query) for text in texts)
        return Draft(question + prefix, prefix, answers, sizing_suffix=" ".join(answers))


class VariableTracking(Family):
    """Multi-hop tracing. Draws samples of `size` noise sentences with one chain of five assignments among them.

    Without a demonstration so far it draws that: the solved example before the question.
    """

    shrinks = False

    def open(self, samples: int, sources: Sources) -> None:
        self._demonstration = ""
        self.step = self.first_size = self.minimum = 5
        length_tokens, self.length_tokens = self.length_tokens, DEMONSTRATION_TOKENS
        try:
            shown, _ = draw_fitting(self, (max(scan(self), self.minimum), self.step), 0, "the demonstration of vt")
        except UserError:  # a tokenizer of few characters a token, with which the official program does not end
            shown = self.draw(0, self.minimum)
        self.length_tokens = length_tokens
        self._demonstration = f"{shown.prompt} {' '.join(shown.outputs)}\n\n"
        self.step = self.first_size = 10
        self.minimum = HOPS + 2  # below, assignments would not stand between sentences

    def draw(self, index: int, size: int) -> Draft:
        names = self.draws.words(HOPS + 1, string.ascii_uppercase, 5 if self._demonstration else 3)[: HOPS + 1]
        value, template = str(self.draws.numpy.randint(10000, 99999)), self.task.template
        chain = [f"VAR {names[0]} = {value}", *(f"VAR {after} = VAR {before} " for before, after in pairwise(names))]
        if not self._demonstration:  # in 2024 the example lost line breaks and "above."
            template = " ".join(template.split()[:-1])
        prefix = self.task.prefix.format(num_v=HOPS + 1, query=value)
        question = template.format(context=self._with_chain(chain, size), query=value) + prefix
        if not self._demonstration:
            return Draft(question, prefix, names, sizing_suffix=f" {names}")
        prompt = f" {self._demonstration}\n\n{question}"
        return Draft(prompt, prefix, names, sizing_suffix=f" {names}", measured=(question, self._demonstration))

    def _with_chain(self, chain: list[str], size: int) -> str:
        """The noise with the chain's assignments in order at drawn places."""
        noise = [NOISE + "\n"] * size
        if len(noise) <= len(chain):  # the official way to find more places: cut the noise at its full stops
            pieces = [piece for sentence in noise for piece in sentence.split(".")]
            noise = [piece + "." if piece.strip() else piece for piece in pieces]
        places = sorted(self.draws.python.sample(range(len(noise)), len(chain)))
        for shift, (place, assignment) in enumerate(zip(places, chain, strict=True)):
            noise.insert(place + shift, assignment)
        return " ".join(noise).replace(". \n", ".\n")


class CommonWords(Family):
    """Aggregation. Draws samples of `size` distinct words: ten are repeated often among the others; one demonstration."""

    step = first_size = 10
    minimum = COMMON

    def open(self, samples: int, sources: Sources) -> None:
        short = self.length_tokens < 4096  # where official sizes are smaller
        # Words of the demonstration; how often common and other words stand in its list, and in the question's.
        self._shown, self._repeats = ((20, 3, 1), (6, 1)) if short else ((40, 10, 3), (30, 3))
        self._words = self.draws.shuffled(single_words(self.profile))
        self.maximum = len(self._words)

    def draw(self, index: int, size: int) -> Draft:
        example, example_answer = self._list(*self._shown)
        question, answer = self._list(size, *self._repeats)
        template, prefix = self.task.template, self.task.prefix
        demonstration = template.format(context=example) + prefix + _numbered(example_answer)
        prompt = f"{demonstration}\n{template.format(context=question)}{prefix}"
        return Draft(prompt, prefix, answer, sizing_suffix=" " + _numbered(answer))

    def _list(self, words: int, common: int, other: int) -> tuple[str, list[str]]:
        chosen = self.draws.python.sample(self._words, words)
        frequent, rest = chosen[:COMMON], chosen[COMMON:]
        return _numbered(self.draws.shuffled(frequent * common + rest * other)), frequent


def _numbered(words: list[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, start=1))


class FrequentWords(Family):
    """Aggregation. Draws samples of about `size` coded words, dots included; the vocabulary stays while size is sought."""

    tie_steps, reserves_generation = -1, False
    # The 2024 program lets samples overflow by their generation. Ours never do, and would lose a step for it: up to 7 %.
    shrink_parts = 8
    minimum = 120  # below, the third and the fourth most frequent word could tie

    def open(self, samples: int, sources: Sources) -> None:
        self.first_size = self.length_tokens // _CODED_LETTERS
        self.step = self.length_tokens // 32
        self._vocabulary_words = self.length_tokens // 50
        self._drawn: tuple[int, list[str]] | None = None

    def draw(self, index: int, size: int) -> Draft:
        if self._drawn is None or self._drawn[0] != index:
            drawn = sorted(set(self.draws.words(self._vocabulary_words, string.ascii_lowercase, _CODED_LETTERS)))
            self._drawn = (index, ["...", *self.draws.shuffled(drawn)[1:]])  # the most frequent word is noise
        vocabulary = self._drawn[1]
        words: list[str] = []
        for rank, word in enumerate(vocabulary, start=1):
            words += [word] * int(size * (float(rank) ** -ALPHA) / _ZETA)
        prompt = self.task.template.format(context=" ".join(self.draws.shuffled(words))) + self.task.prefix
        return Draft(prompt, self.task.prefix, vocabulary[1:4])


class DocumentQuestions(Family):
    """Question answering. Draws samples of `size` documents, the question's among others; sample i asks question i."""

    step = first_size = 10
    minimum = 1

    def open(self, samples: int, sources: Sources) -> None:
        asked: Any = self.task.source  # squad or hotpotqa
        self._questions, documents = questions(asked, source_path(asked, sources))
        if len(self._questions) < samples:
            raise UserError(
                f"ruler.samples: {samples} are asked for, the question file has {len(self._questions)}; ask for fewer"
            )
        self._documents = documents
        self.maximum = len(documents)

    def draw(self, index: int, size: int) -> Draft:
        question = self._questions[max(index, 0)]
        chosen = enumerate(self._chosen(question.own, question.gold, question.related, size), start=1)
        context = "\n\n".join(f"Document {number}:\n{text}" for number, text in chosen)
        prompt = self.task.template.format(context=context, query=question.query) + self.task.prefix
        return Draft(prompt, self.task.prefix, question.answers, sizing_suffix=f" {question.answers}")

    def _chosen(self, own: list[int], gold: list[int], related: list[int], size: int) -> list[str]:
        if size >= len(self._documents):
            shuffled = self.draws.shuffled(self._documents)
            if self.official:  # the 2024 program shuffles its own list, so that later indices point elsewhere
                self._documents = shuffled
            return shuffled
        if size < len(own):
            if self.official:
                raise ValueError("the 2024 program needs all documents that come with the question")
            others = [i for i in own if i not in gold]
            dropped = set(others[max(0, size - len(gold)) :])
            chosen = [i for i in own if i not in dropped]
        elif size - len(own) > len(related):
            taken = {*own, *related}
            others = [i for i in range(len(self._documents)) if i not in taken]
            chosen = own + related + self.draws.python.sample(others, size - len(own) - len(related))
        else:
            chosen = own + self.draws.python.sample(related, size - len(own))
        return self.draws.shuffled([self._documents[i] for i in chosen])


FAMILIES: dict[str, type[Family]] = {
    "niah": NeedleInHaystack,
    "variable_tracking": VariableTracking,
    "common_words": CommonWords,
    "frequent_words": FrequentWords,
    "qa": DocumentQuestions,
}


def generate(
    task: str,
    length_tokens: int,
    samples: int,
    seed: int,
    tokenizer_dir: Path,
    sources: Sources | None = None,
    profile: Profile = "paper",
) -> list[dict[str, Any]]:
    """Samples as RULER's JSON lines: index, input (without the answer prefix), answer_prefix, outputs, length.

    `length` = BOS + prompt + tokens to generate (in profile `official-2024` as that program counts it). The same
    arguments give the same samples in any order, process and hash seed. UserError, before anything is drawn: unknown task,
    no tokenizer, a source that is missing or cannot be read, or a length that cannot hold the task.
    """
    if task not in TASKS:
        raise UserError(f"ruler task {task!r}: unknown{choose(task, TASKS)}")
    spec = TASKS[task]
    if length_tokens < SHORTEST_TOKENS:
        raise UserError(f"ruler.lengths_tokens: {length_tokens} is too short; use at least {SHORTEST_TOKENS}")
    counter, what = token_counter(tokenizer_dir), f"{task} at {length_tokens}"
    if (count := counter.count_whole("one two three four " * 250)) < 100:  # prompts would grow without end
        raise UserError(f"{tokenizer_dir}: its tokenizer reads 1,000 words as {counted(count, 'token')}; give another")
    family = FAMILIES[spec.family](spec, length_tokens, counter, Draws(seed), profile)
    family.open(samples, sources or {})
    size = find_size(family, what)
    drawn = [draw_fitting(family, size, index, what) for index in range(samples)]
    first = drawn[0][0].prompt
    if counter.count(first) != counter.count_whole(first):
        raise AssertionError("word-wise token counts differ from the tokenizer's on a RULER prompt")
    return [
        {
            "index": index,
            "input": draft.prompt.removesuffix(draft.answer_prefix),
            "answer_prefix": draft.answer_prefix,
            "outputs": draft.outputs,
            "length": tokens,
        }
        for index, (draft, tokens) in enumerate(drawn)
    ]
