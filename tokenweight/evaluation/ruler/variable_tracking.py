"""Variable tracking: one chain of five assignments among noise, one demonstration (Appendix C, Multi-hop tracing)."""

from __future__ import annotations

import re
import string
from itertools import pairwise

from tokenweight.evaluation.ruler.draft import Draft, Draws, Family
from tokenweight.evaluation.ruler.tasks import NOISE, VT_PREFIX, VT_TEMPLATE, Profile

HOPS = 4
DEMONSTRATION_TOKENS = 500  # the official bound on the demonstration; in 2024 its generation included
DEMONSTRATION_STEP = 5
_LETTERS = {True: 3, False: 5}  # letters of a variable's name, in the demonstration or not
_DEMONSTRATION_VALUE = "12345"  # profile `current`: stands for the value that each sample draws


class VariableTracking(Family):
    """Draws samples of `size` noise sentences; `demonstration` is the solved example before the question.

    In profile `current` each sample gives the demonstration names and a value of its own, and every sentence and
    assignment a line of its own.
    """

    shrinks = False

    def __init__(self, demonstration: Draft | None, profile: Profile, length_tokens: int) -> None:
        self._current = profile == "current"
        self._demonstration = None if demonstration is None else self._solved(demonstration)
        self._names = [] if demonstration is None else demonstration.outputs
        self.minimum = HOPS + 1 if self._current else HOPS + 2  # below, assignments would not stand between sentences
        self.step = 5 if self._current and length_tokens < 4096 else 10
        if demonstration is None:
            self.step = self.minimum = DEMONSTRATION_STEP
        self.first_size = self.measured_size = self.step

    def draw(self, draws: Draws, index: int, size: int) -> Draft:
        """A sample with `size` noise sentences."""
        names, value, chain = self._chain(draws)
        context = self._lines(draws, chain, size) if self._current else self._context(draws, chain, size)
        template = VT_TEMPLATE
        if self._demonstration is None and not self._current:  # in 2024 the example lost line breaks and "above."
            template = " ".join(template.split()[:-1])
        prefix = VT_PREFIX.format(num_v=HOPS + 1, query=value)
        question = template.format(context=context, query=value) + prefix
        if self._demonstration is None:
            return Draft(question, prefix, names, sizing_suffix=f" {names}")
        prompt = f" {self._demonstration}\n\n{question}"
        if self._current:  # while the size is sought, the demonstration is not drawn again
            shown = self._demonstration if index < 0 else self._renamed(draws, self._demonstration)
            prompt = f"{shown}\n{question}"
        return Draft(prompt, prefix, names, sizing_suffix=f" {names}", measured=(question, self._demonstration))

    def _chain(self, draws: Draws) -> tuple[list[str], str, list[str]]:
        letters = _LETTERS[self._demonstration is None]
        names = [_name(draws, letters) for _ in range(HOPS + 1)]
        while len(set(names)) < HOPS + 1:
            names.append(_name(draws, letters))
        names = names[: HOPS + 1]
        value = _DEMONSTRATION_VALUE if self._current and self._demonstration is None else _value(draws)
        links = [f"VAR {after} = VAR {before} " for before, after in pairwise(names)]
        return names, value, [f"VAR {names[0]} = {value}", *links]

    def _context(self, draws: Draws, chain: list[str], size: int) -> str:
        sentences = [NOISE + "\n"] * size
        if len(sentences) <= len(chain):  # the official way to find more places: cut the noise at its full stops
            pieces = [piece for sentence in sentences for piece in sentence.split(".")]
            sentences = [piece + "." if piece.strip() else piece for piece in pieces]
        return " ".join(_hidden(draws, chain, sentences)).replace(". \n", ".\n")

    def _lines(self, draws: Draws, chain: list[str], size: int) -> str:
        return "\n".join(_hidden(draws, chain, [NOISE] * size))

    def _solved(self, example: Draft) -> str:
        """The example as it stands before a question: prompt, answer, line breaks."""
        return f"{example.prompt} {' '.join(example.outputs)}" + ("\n" if self._current else "\n\n")

    def _renamed(self, draws: Draws, demonstration: str) -> str:
        """The demonstration with other names and another value, in one pass: no new name is taken for an old one."""
        new: dict[str, str] = {}
        for old in self._names:
            name = _name(draws, len(old))
            while name in new.values() or name == "VAR":
                name = _name(draws, len(old))
            new[old] = name
        new[_DEMONSTRATION_VALUE] = _value(draws)
        return re.sub(rf"\b({'|'.join(new)})\b", lambda match: new[match.group(1)], demonstration)


def _hidden(draws: Draws, chain: list[str], sentences: list[str]) -> list[str]:
    """The sentences with the chain's assignments in order at drawn places."""
    found = list(sentences)
    places = sorted(draws.python.sample(range(len(found)), len(chain)))
    for shift, (place, assignment) in enumerate(zip(places, chain, strict=True)):
        found.insert(place + shift, assignment)
    return found


def _name(draws: Draws, letters: int) -> str:
    return "".join(draws.python.choices(string.ascii_uppercase, k=letters))


def _value(draws: Draws) -> str:
    return str(draws.numpy.randint(10000, 99999))
