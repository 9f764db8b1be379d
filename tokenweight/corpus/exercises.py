"""Exercises of the novel in the prompt form of RULER (hsiehjackson/RULER, October 2024).

They let a tiny base model read such prompts: needles in a haystack (one or several keys, values, queries), variable
tracking, common and frequent words. Values asked for are labelled as recalls; the answers of variable tracking,
word counting, and keys with several values stay unlabelled, because no single earlier place determines them.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from string import ascii_lowercase, ascii_uppercase
from uuid import UUID

from tokenweight.corpus.documents import Document
from tokenweight.corpus.manuscript import NOVEL, SAYINGS, Fact, Manuscript, words


def key_and_value(rng: Random, relation: str) -> tuple[str, str]:
    """Key and value in RULER's form: adjective-noun and 7 digits or a uuid; a variable's name and 5 digits."""
    if relation == "variable":
        return _letters(rng, ascii_uppercase, 5), str(rng.randint(10_000, 99_999))
    key = f"{rng.choice(words('adjective'))}-{rng.choice(words('noun'))}"
    return key, str(rng.randint(1_000_000, 9_999_999)) if relation == "number" else _uuid(rng)


def exercise(rng: Random, id: str, characters: int) -> Document:
    manuscript = Manuscript()
    write = rng.choices((_niah, _tracking, _common_words, _frequent_words), (12, 2, 1, 1))[0]
    write(rng, manuscript, characters)
    return manuscript.document(id, "exercises")


def _niah(rng: Random, manuscript: Manuscript, characters: int) -> None:
    """Needles, then questions up to the length: half of the text asks and answers."""
    noun = "uuid" if rng.random() < 0.08 else "number"
    values_per_key = rng.choice((1, 1, 1, 1, 2, 4))
    queries = rng.choice((1, 1, 2, 4)) if values_per_key == 1 else 1
    keys = rng.choice((queries, queries + 3, max(queries, characters // 200)))
    facts = _facts(rng, noun, keys, values_per_key)
    many = queries > 1 or values_per_key > 1
    texts = {name: text.format(noun=noun) for name, text in NOVEL["needles"].items()}
    manuscript.write(texts["opening_of_many" if many else "opening"])
    needles = [fact for group in facts for fact in group]
    rng.shuffle(needles)
    _haystack(rng, manuscript, needles, texts["needle"], int(characters * rng.choice((0.4, 0.7))))
    while True:
        _ask(manuscript, rng.sample(facts, queries), texts)
        if manuscript.length > characters - 180:
            return


def _facts(rng: Random, relation: str, keys: int, values: int) -> list[list[Fact]]:
    groups = []
    for _ in range(keys):
        key = key_and_value(rng, relation)[0] if relation == "number" or rng.random() < 0.5 else _uuid(rng)
        groups.append([Fact(relation, key, key_and_value(rng, relation)[1]) for _ in range(values)])
    return groups


def _uuid(rng: Random) -> str:
    return str(UUID(int=rng.getrandbits(128)))


def _letters(rng: Random, alphabet: str, count: int) -> str:
    return "".join(rng.choices(alphabet, k=count))


def _haystack(rng: Random, manuscript: Manuscript, needles: list[Fact], needle: str, characters: int) -> None:
    """Needles spread over filler up to the length; where they fill it alone, one to a line."""
    filler = max(0, characters - len(needles) * 70) // 75
    places = sorted(rng.randint(0, filler) for _ in needles)
    noise = rng.random() < 0.4
    joint = "\n" if noise or not filler else " "
    for i in range(filler + 1):
        for fact in (fact for place, fact in zip(places, needles, strict=True) if place == i):
            manuscript.write_template(needle + joint, fact.key, fact)
        if i < filler:
            manuscript.write_saying(SAYINGS[0] if noise else rng.choice(SAYINGS), free_words=1)
            manuscript.write(joint)
    if joint == " ":
        manuscript.write("\n")


def _ask(manuscript: Manuscript, asked: list[list[Fact]], texts: dict[str, str]) -> None:
    """One question about all keys of `asked`, and its answer."""
    wanted = [fact for group in asked for fact in group]
    keys = [group[0].key for group in asked]
    query = ", ".join(keys[:-1]) + ", and " + keys[-1] if len(keys) > 1 else keys[0]
    manuscript.write_template(texts["question" if len(wanted) == 1 else "question_of_many"], query)
    for i, fact in enumerate(wanted):
        last = "" if len(wanted) == 2 else ","
        manuscript.write(" " if i == 0 else f"{last} and " if i == len(wanted) - 1 else ", ")
        if len(asked) == len(wanted):
            manuscript.write_value(fact)
        else:  # several values of one key: which comes first is not determined
            manuscript.write(fact.value)
    manuscript.write(".\n")


def _tracking(rng: Random, manuscript: Manuscript, characters: int) -> None:
    names = [_letters(rng, ascii_uppercase, 5) for _ in range(5)]
    value = str(rng.randint(10_000, 99_999))
    lines = [f"VAR {names[0]} = {value}"] + [f"VAR {b} = VAR {a} " for a, b in pairwise(names)]
    filler = max(5, (characters - 500) // len(SAYINGS[0]))
    places = sorted(rng.randint(0, filler - 1) for _ in lines)
    task, question = NOVEL["tracking"]
    manuscript.write(task)
    for i in range(filler):
        manuscript.write_saying(SAYINGS[0], free_words=1)
        manuscript.write("\n")
        for line in (line for place, line in zip(places, lines, strict=True) if place == i):
            manuscript.write(f" {line} ")
    manuscript.write(question.format(value=value, names=" ".join(names)))


def _common_words(rng: Random, manuscript: Manuscript, characters: int) -> None:
    count = max(40, characters // 14)
    common = rng.sample(words("noun"), 10)
    listed = common * (count // 20) + rng.choices(words("noun"), k=count // 2)
    rng.shuffle(listed)
    numbered = (" ".join(f"{i}. {word}" for i, word in enumerate(list_, 1)) for list_ in (listed, common))
    manuscript.write(NOVEL["common_words"].format(*numbered))


def _frequent_words(rng: Random, manuscript: Manuscript, characters: int) -> None:
    coded = [_letters(rng, ascii_lowercase, 6) for _ in range(12)]
    text = rng.choices(["...", *coded], [12, *(12 / (i + 1) for i in range(12))], k=max(40, characters // 14))
    manuscript.write(NOVEL["frequent_words"].format(" ".join(text), " ".join(coded[:3])))
