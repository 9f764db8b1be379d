"""RULER's sources: haystack prose, and questions in the schemas of SQuAD 2.0 and HotpotQA."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from smoke_eval.world import Person, World
from tokenweight.corpus.manuscript import PLACES
from tokenweight.corpus.novel import haystack_text

ARTICLES, PARAGRAPHS = 24, 6
HOTPOTQA_QUESTIONS = 120
HAYSTACK_CHARACTERS = 80_000


def write(out: Path) -> None:
    """Write haystack.txt, squad.json and hotpotqa.json."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "haystack.txt").write_text(haystack_text(seed=7, characters=HAYSTACK_CHARACTERS), encoding="utf-8")
    for name, data in (("squad", _squad()), ("hotpotqa", _hotpotqa())):
        (out / f"{name}.json").write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8")


def _squad() -> dict[str, Any]:
    rng = Random("smoke-eval/squad")
    world = World(rng)
    people = iter(world.persons)
    titles = rng.sample(PLACES, ARTICLES)
    articles = [
        {"title": title, "paragraphs": [_squad_paragraph(world, next(people)) for _ in range(PARAGRAPHS)]}
        for title in titles
    ]
    return {"version": "v2.0", "data": articles}


def _squad_paragraph(world: World, person: Person) -> dict[str, Any]:
    facts = person.facts
    world.rng.shuffle(facts)
    context = world.paragraph(facts, 40)
    asked = [
        (f"Where does {person.name} live?", person.home),
        (f"What does {person.name} keep?", person.keepsake),
    ]
    qas = [
        {
            "question": question,
            "id": f"{person.name.lower()}-{number}",
            "answers": [{"text": answer, "answer_start": context.index(f" {answer}.") + 1}],
            "is_impossible": False,
        }
        for number, (question, answer) in enumerate(asked)
    ]
    unknown = {"question": f"How old is {person.name}?", "id": f"{person.name.lower()}-2", "answers": []}
    return {"qas": [*qas, {**unknown, "is_impossible": True}], "context": context}


def _hotpotqa() -> list[dict[str, Any]]:
    rng = Random("smoke-eval/hotpotqa")
    world = World(rng)
    return [_hotpotqa_entry(world, number, person) for number, person in enumerate(world.persons[:HOTPOTQA_QUESTIONS])]


def _hotpotqa_entry(world: World, number: int, person: Person) -> dict[str, Any]:
    teacher = world.person(person.teacher)
    others = [p for p in world.persons if p.name not in (person.name, teacher.name)]
    titled = [_document(p) for p in (person, teacher, *world.rng.sample(others, 2))]
    world.rng.shuffle(titled)
    return {
        "_id": f"{number:024x}",
        "question": f"In which town does the teacher of {person.name} live?",
        "answer": teacher.home,
        "type": "bridge",
        "level": "easy",
        "supporting_facts": [[person.name, 0], [teacher.name, 1]],
        "context": titled,
    }


def _document(person: Person) -> list[Any]:
    return [person.name, [f"{person.name} was taught by {person.teacher}.", *(f" {fact}" for fact in person.facts)]]
