"""Variable tracking: one chain of five assignments among noise, one demonstration (Appendix C, Multi-hop tracing)."""

from __future__ import annotations

import string
from itertools import pairwise

from tokenweight.evaluation.ruler.draft import Draft, Draws, Official2024
from tokenweight.evaluation.ruler.tasks import NOISE, VT_PREFIX, VT_TEMPLATE

HOPS = 4
DEMONSTRATION_TOKENS = 500  # the official bound on the demonstration, its generation included
DEMONSTRATION_STEP = 5
_LETTERS = {True: 3, False: 5}  # letters of a variable's name, in the demonstration or not


class VariableTracking:
    """Draws samples of `size` noise sentences; `demonstration` is the solved example before the question."""

    official = Official2024(shrinks=False)
    step = first_size = 10
    minimum = HOPS + 2  # below, assignments could not stand between whole sentences
    maximum = None

    def __init__(self, demonstration: str | None) -> None:
        self._demonstration = demonstration
        if demonstration is None:
            self.step = self.first_size = self.minimum = DEMONSTRATION_STEP

    def draw(self, draws: Draws, index: int, size: int) -> Draft:
        """A sample with `size` noise sentences (Draft in the sense of :mod:`.draft`)."""
        names, value, chain = self._chain(draws)
        context = self._context(draws, chain, size)
        template = VT_TEMPLATE
        if self._demonstration is None:  # the official example loses its line breaks and the word "above."
            template = " ".join(template.split()[:-1])
        prefix = VT_PREFIX.format(num_v=HOPS + 1, query=value)
        question = template.format(context=context, query=value) + prefix
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

    def _context(self, draws: Draws, chain: list[str], size: int) -> str:
        sentences = [NOISE + "\n"] * size
        if len(sentences) <= len(chain):  # the official way to find more places: cut the noise at its full stops
            pieces = [piece for sentence in sentences for piece in sentence.split(".")]
            sentences = [piece + "." if piece.strip() else piece for piece in pieces]
        places = sorted(draws.python.sample(range(len(sentences)), len(chain)))
        for shift, (place, assignment) in enumerate(zip(places, chain, strict=True)):
            sentences.insert(place + shift, assignment)
        return " ".join(sentences).replace(". \n", ".\n")


def demonstration_text(example: Draft) -> str:
    """The solved example as it stands before a question: prompt, answer, two line breaks."""
    return f"{example.prompt} {' '.join(example.outputs)}\n\n"


def _name(draws: Draws, letters: int) -> str:
    return "".join(draws.python.choices(string.ascii_uppercase, k=letters))
