"""Contexts, questions and answers of the prose tasks; every answer can be copied from its context."""

from __future__ import annotations

from typing import Any

from smoke_eval.world import Person, World
from tokenweight.corpus.manuscript import PLACES

Made = dict[str, Any]


def _crowd(world: World, words: int) -> list[Person]:
    return world.rng.sample(world.persons, max(3, min(40, words // 60)))


def _facts(people: list[Person]) -> list[str]:
    return [fact for person in people for fact in person.facts]


def story_question(world: World, words: int) -> Made:
    people = _crowd(world, words)
    asked = people[0]
    return {
        "context": world.story(_facts(people), words),
        "input": f"Where does {asked.name} live?",
        "answers": [asked.home, f"in {asked.home}"],
    }


def article_question(world: World, words: int) -> Made:
    towns = world.rng.sample(PLACES, 4)
    numbers = [str(world.rng.randint(12, 98)) for _ in towns]
    results = [f"The river at {town} is {n} miles long." for town, n in zip(towns, numbers, strict=True)]
    third = words // 3
    context = (
        "Introduction\n"
        + world.story([f"We measured the rivers of {towns[0]}, {towns[1]}, {towns[2]} and {towns[3]}."], third)
        + "\n\nMethod\n"
        + world.story(["Every river was walked twice with a rope."], third)
        + "\n\nResults\n"
        + world.story(results, third)
    )
    kind = world.rng.randrange(3)
    if kind == 0:
        return {"context": context, "input": "Was every river walked twice?", "answers": ["Yes"]}
    if kind == 1:
        return {"context": context, "input": "How deep are the rivers?", "answers": ["Unanswerable"]}
    return {"context": context, "input": f"How long is the river at {towns[1]}?", "answers": [f"{numbers[1]} miles"]}


def text_question(world: World, words: int) -> Made:
    people = _crowd(world, words)
    asked = people[1]
    return {
        "context": world.story(_facts(people), words),
        "input": f"What does {asked.name} keep?",
        "answers": [f"the {asked.keepsake}."],
    }


def passages_question(world: World, words: int) -> Made:
    person = world.rng.choice(world.persons)
    teacher = world.person(person.teacher)
    others = [p for p in world.persons if p.name not in (person.name, teacher.name)]
    people = [person, teacher, *world.rng.sample(others, max(2, words // 60))]
    world.rng.shuffle(people)
    passages = []
    for number, one in enumerate(people, start=1):
        sentences = [f"{one.name} was taught by {one.teacher}.", *one.facts]
        passages.append(f"Passage {number}:\n{one.name}\n{world.paragraph(sentences, 45)}")
    return {
        "context": "\n\n".join(passages),
        "input": f"In which town does the teacher of {person.name} live?",
        "answers": [teacher.home],
    }


def report(world: World, words: int) -> Made:
    people = _crowd(world, words)
    findings = [f"The office found that the {p.trade} of {p.home} keeps the {p.keepsake}." for p in people[:6]]
    context = (
        "What the office found\n\n" + " ".join(findings) + "\n\nWhat the office heard\n\n" + world.story([], words)
    )
    return {"context": context, "answers": [" ".join(findings)]}


def meeting(world: World, words: int) -> Made:
    people = world.rng.sample(world.persons, 5)
    decisions = {p.name: f"The {p.keepsake} goes to the {p.trade} of {p.home}." for p in people}
    lines = [f"{p.name}: {decisions[p.name]}" for p in people]
    while sum(len(line.split()) for line in lines) < words:
        speaker = world.rng.choice(people)
        lines.insert(world.rng.randint(0, len(lines)), f"{speaker.name}: {world.filler()}")
    asked = people[0]
    return {
        "context": "\n".join(lines),
        "input": f"What did {asked.name} say about the {asked.keepsake}?",
        "answers": [f"{asked.name} said that the {asked.keepsake} goes to the {asked.trade} of {asked.home}."],
    }


def news(world: World, words: int) -> Made:
    count = 3
    passages, summary = [], []
    for number in range(1, count + 1):
        person = world.rng.choice(world.persons)
        head = f"{person.name} came back to {person.home} with the {person.keepsake}."
        summary.append(head)
        passages.append(f"Passage {number}:\n{head} {world.story(person.facts, words // count)}")
    return {"context": "\n".join(passages), "answers": [" ".join(summary)]}


TYPES = {
    "Place": lambda world: f"Where does {world.rng.choice(world.persons).name} live ?",
    "Trade": lambda world: f"What does {world.rng.choice(world.persons).name} work as ?",
    "Keepsake": lambda world: f"What does {world.rng.choice(world.persons).name} keep ?",
    "Teacher": lambda world: f"Who taught {world.rng.choice(world.persons).name} ?",
    "Number": lambda world: f"How many roads lead to {world.rng.choice(PLACES)} ?",
}


def question_types(world: World, words: int) -> Made:
    kinds = list(TYPES)
    lines: list[str] = []
    while sum(len(line.split()) for line in lines) < words * 4 // 5:  # names of types add to the tokens
        kind = world.rng.choice(kinds)
        lines.append(f"Question: {TYPES[kind](world)}\nType: {kind}")
    asked = world.rng.choice(kinds)
    return {
        "context": "\n".join(lines),
        "input": f"Question: {TYPES[asked](world)}\nType:",
        "answers": [asked],
        "all_classes": kinds,
    }


def _trivia_item(world: World) -> tuple[str, str]:
    person = world.rng.choice(world.persons)
    passage = world.paragraph(person.facts, 45)
    return f"Passage:\n{passage}\nQuestion:\nWhere does {person.name} live?\nAnswer:", person.home


def trivia(world: World, words: int) -> Made:
    lines: list[str] = []
    while sum(len(line.split()) for line in lines) < words:
        question, answer = _trivia_item(world)
        lines.append(f"{question}\n{answer}")
    question, answer = _trivia_item(world)
    return {"context": "\n".join(lines), "input": question, "answers": [answer, answer.lower()]}


def _dialogue(world: World) -> tuple[str, str]:
    one, other = world.rng.sample(world.persons, 2)
    talk = (
        f"Dialogue: {one.name}: Do you still keep the {other.keepsake}?\n{other.name}: Yes, it is in {other.home}.\n"
        f"{one.name}: {world.filler()}\nSummary:"
    )
    return talk, f"{other.name} keeps the {other.keepsake} in {other.home}."


def dialogues(world: World, words: int) -> Made:
    lines: list[str] = []
    while sum(len(line.split()) for line in lines) < words:
        talk, summary = _dialogue(world)
        lines.append(f"{talk} {summary}")
    talk, summary = _dialogue(world)
    return {"context": "\n".join(lines), "input": talk, "answers": [summary]}


def passage_count(world: World, words: int) -> Made:
    total = max(4, words // 45)
    unique = world.rng.randint(total // 2, total - 1)
    people = world.rng.sample(world.persons, unique)
    texts = [world.paragraph(person.facts, 35) for person in people]
    listed = texts + [world.rng.choice(texts) for _ in range(total - unique)]
    world.rng.shuffle(listed)
    context = "\n\n".join(f"Paragraph {number}: {text}" for number, text in enumerate(listed, start=1))
    return {"context": context, "answers": [str(unique)]}


def passage_retrieval(world: World, words: int) -> Made:
    people = world.rng.sample(world.persons, 30)
    each = max(5, words // 30 - 4)
    texts = [world.paragraph(p.facts if each > 20 else p.facts[:1], each) if each > 10 else p.facts[0] for p in people]
    wanted = world.rng.randrange(30)
    person = people[wanted]
    context = "\n\n".join(f"Paragraph {number}: {text}" for number, text in enumerate(texts, start=1))
    return {
        "context": context,
        "input": f"It is about {person.name}, who lives in {person.home}.",
        "answers": [f"Paragraph {wanted + 1}"],
    }
