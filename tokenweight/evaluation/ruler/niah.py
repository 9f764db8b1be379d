"""Needle in a haystack: key-value sentences hidden in text, noise or other needles (Appendix C, Retrieval)."""

from __future__ import annotations

import uuid

import numpy as np

from tokenweight.evaluation.ruler.draft import Draft, Draws, Family
from tokenweight.evaluation.ruler.sentences import sentences
from tokenweight.evaluation.ruler.tasks import NEEDLE, NIAH_PREFIX, NIAH_TEMPLATE, NOISE, Needles, Profile
from tokenweight.evaluation.ruler.words import needle_keys

_DEPTHS_PERCENT = [int(d) for d in np.round(np.linspace(0, 100, num=40, endpoint=True))]
_MINIMUM_ESSAY_WORDS = 40


class NeedleInHaystack(Family):
    """Draws samples of `size` haystack units: words of an essay, noise sentences, or needles."""

    def __init__(self, needles: Needles, length_tokens: int, haystack: tuple[str, ...], profile: Profile) -> None:
        self.needles = needles
        self._words = haystack
        self._cycles = profile != "official-2024"  # the 2024 program stops growing where its text ends
        count = needles.keys * needles.values_per_key
        if needles.haystack == "essay":
            self.step, self.minimum = 500, _MINIMUM_ESSAY_WORDS
            self.maximum = None if self._cycles else len(haystack)
        else:
            self.step, self.minimum = (25 if length_tokens >= 4096 else 5), count
        self.first_size = self.step

    def draw(self, draws: Draws, index: int, size: int) -> Draft:
        """A sample whose haystack has `size` units."""
        task, random = self.needles, draws.python
        keys: list[str] = []
        values: list[list[str]] = []
        hidden: list[str] = []
        for _ in range(task.keys):
            keys.append(_make(task.key_type, draws))
            values.append([])
            for _ in range(task.values_per_key):
                values[-1].append(_make(task.value_type, draws))
                hidden.append(NEEDLE.format(type_needle_v=task.value_type, key=keys[-1], value=values[-1][-1]))
        hidden = draws.shuffled(hidden)
        context = self._essay(draws, hidden, size) if task.haystack == "essay" else self._lines(draws, hidden, size)
        asked = random.sample(range(task.keys), task.queries)
        return self._asked(context, [keys[i] for i in asked], [value for i in asked for value in values[i]])

    def _essay(self, draws: Draws, hidden: list[str], size: int) -> str:
        document = sentences(self._text(size))
        depths = draws.python.sample(_DEPTHS_PERCENT, len(hidden))
        cuts = sorted(int(len(document) * (depth / 100)) for depth in depths)
        parts = []
        for start, end, needle in zip([0, *cuts], cuts, hidden, strict=False):
            parts += [" ".join(document[start:end]), needle]
        return " ".join([*parts, " ".join(document[cuts[-1] :])])

    def _text(self, size: int) -> str:
        words = self._words
        if self._cycles and size > len(words):
            words = words * (size // len(words) + 1)
        return " ".join(words[:size]).strip()

    def _lines(self, draws: Draws, hidden: list[str], size: int) -> str:
        task = self.needles
        if task.haystack == "repeat":
            lines = [NOISE] * size
        else:
            lines = [
                NEEDLE.format(
                    type_needle_v=task.value_type, key=_make(task.key_type, draws), value=_make(task.value_type, draws)
                )
                for _ in range(size)
            ]
        places = sorted(draws.python.sample(range(size), len(hidden)), reverse=True)
        for place, needle in zip(places, hidden, strict=True):
            lines.insert(place, needle)
        return "\n".join(lines)

    def _asked(self, context: str, queries: list[str], answers: list[str]) -> Draft:
        query = ", ".join(queries[:-1]) + ", and " + queries[-1] if len(queries) > 1 else queries[0]
        template, prefix, values = NIAH_TEMPLATE, NIAH_PREFIX, str(self.needles.value_type)
        if len(answers) == 1:
            template, prefix, values = _singular(template), _singular(prefix), values[:-1]
        prefix = prefix.format(type_needle_v=values, query=query)
        prompt = template.format(type_needle_v=values, context=context, query=query) + prefix
        return Draft(prompt, prefix, answers, sizing_suffix=" ".join(answers))


def _singular(template: str) -> str:
    return template.replace("Some", "A").replace("are all", "is").replace("are", "is")


def _make(kind: str, draws: Draws) -> str:
    if kind == "numbers":
        return str(draws.python.randint(10**6, 10**7 - 1))
    if kind == "words":
        return draws.python.choice(needle_keys())
    return str(uuid.UUID(int=draws.python.getrandbits(128), version=4))
