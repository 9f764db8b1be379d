"""Variable tracking: one chain of five assignments among noise, one demonstration (Appendix C, Multi-hop tracing)."""

from __future__ import annotations

import string
from itertools import pairwise

from tokenweight.evaluation.ruler.draft import Draft, Draws, Family
from tokenweight.evaluation.ruler.tasks import NOISE, VT_PREFIX, VT_TEMPLATE

HOPS = 4
DEMONSTRATION_TOKENS = 500  # the official bound on the demonstration, its generation included
DEMONSTRATION_STEP = 5
_LETTERS = {True: 3, False: 5}  # letters of a variable's name, in the demonstration or not


class VariableTracking(Family):
    """Draws samples of `size` noise sentences; `demonstration` is the solved example before the question."""

    shrinks = False

    def __init__(self, demonstration: Draft | None) -> None:
        self._demonstration = None
        self.step, self.minimum = DEMONSTRATION_STEP, DEMONSTRATION_STEP
        if demonstration is not None:
            self._demonstration = f"{demonstration.prompt} {' '.join(demonstration.outputs)}\n\n"
            self.step, self.minimum = 10, HOPS + 2  # below, assignments would not stand between sentences
        self.first_size = self.step

    def draw(self, draws: Draws, index: int, size: int) -> Draft:
        """A sample with `size` noise sentences."""
        names, value, chain = self._chain(draws)
        template = VT_TEMPLATE
        if self._demonstration is None:  # in 2024 the example lost line breaks and "above."
            template = " ".join(template.split()[:-1])
        prefix = VT_PREFIX.format(num_v=HOPS + 1, query=value)
        question = template.format(context=_context(draws, chain, size), query=value) + prefix
        if self._demonstration is None:
            return Draft(question, prefix, names, sizing_suffix=f" {names}")
        prompt = f" {self._demonstration}\n\n{question}"
        return Draft(prompt, prefix, names, sizing_suffix=f" {names}", measured=(question, self._demonstration))

    def _chain(self, draws: Draws) -> tuple[list[str], str, list[str]]:
        letters = _LETTERS[self._demonstration is None]
        names = [_name(draws, letters) for _ in range(HOPS + 1)]
        while len(set(names)) < HOPS + 1:
            names.append(_name(draws, letters))
        names = names[: HOPS + 1]
        value = str(draws.numpy.randint(10000, 99999))
        links = [f"VAR {after} = VAR {before} " for before, after in pairwise(names)]
        return names, value, [f"VAR {names[0]} = {value}", *links]


def _context(draws: Draws, chain: list[str], size: int) -> str:
    """The noise with the chain's assignments in order at drawn places."""
    sentences = [NOISE + "\n"] * size
    if len(sentences) <= len(chain):  # the official way to find more places: cut the noise at its full stops
        pieces = [piece for sentence in sentences for piece in sentence.split(".")]
        sentences = [piece + "." if piece.strip() else piece for piece in pieces]
    places = sorted(draws.python.sample(range(len(sentences)), len(chain)))
    for shift, (place, assignment) in enumerate(zip(places, chain, strict=True)):
        sentences.insert(place + shift, assignment)
    return " ".join(sentences).replace(". \n", ".\n")


def _name(draws: Draws, letters: int) -> str:
    return "".join(draws.python.choices(string.ascii_uppercase, k=letters))
