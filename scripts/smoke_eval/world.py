"""A small world of persons with homes, trades, keepsakes and teachers, and prose about it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tokenweight.corpus.manuscript import KEEPSAKES, NAMES, PLACES, SAYINGS, TRADES

LINKS = (
    "The road to {place} was long.",
    "Nobody in {place} had seen it.",
    "It rained all day in {place}.",
    "They waited by the gate of {place}.",
    "The market of {place} was full of people.",
    "In the evening the lamps were lit in {place}.",
)


@dataclass(frozen=True)
class Person:
    """Somebody of the world: each fact is stated in one kind of sentence."""

    name: str
    home: str
    trade: str
    keepsake: str
    teacher: str

    @property
    def facts(self) -> list[str]:
        return [
            f"{self.name} lives in {self.home}.",
            f"{self.name} works as the {self.trade}.",
            f"{self.name} keeps the {self.keepsake}.",
        ]


class World:
    """Persons drawn from a seed, and random prose around them."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        names = list(dict.fromkeys(NAMES))
        rng.shuffle(names)
        self.persons = [
            Person(name, rng.choice(PLACES), rng.choice(TRADES), rng.choice(KEEPSAKES), names[(i + 1) % len(names)])
            for i, name in enumerate(names)
        ]
        self._by_name = {person.name: person for person in self.persons}

    def person(self, name: str) -> Person:
        return self._by_name[name]

    def filler(self) -> str:
        """A sentence that answers nothing: a saying or a remark on some place."""
        if self.rng.random() < 0.5:
            return self.rng.choice(SAYINGS)
        return self.rng.choice(LINKS).format(place=self.rng.choice(PLACES))

    def paragraph(self, sentences: list[str], words: int) -> str:
        """The given sentences in order among filler, about `words` words long."""
        filler: list[str] = []
        while sum(len(text.split()) for text in filler + sentences) < words:
            filler.append(self.filler())
        places = sorted(self.rng.randint(0, len(filler)) for _ in sentences)
        for shift, (place, sentence) in enumerate(zip(places, sentences, strict=True)):
            filler.insert(place + shift, sentence)
        return " ".join(filler)

    def story(self, sentences: list[str], words: int) -> str:
        """Paragraphs of about 70 words with the given sentences spread over them."""
        count = max(1, words // 70)
        groups: list[list[str]] = [[] for _ in range(count)]
        for sentence in sentences:
            self.rng.choice(groups).append(sentence)
        return "\n\n".join(self.paragraph(group, 70) for group in groups)
