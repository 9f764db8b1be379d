"""Exercises of the novel in the prompt form of RULER (hsiehjackson/RULER, October 2024).

They let a tiny base model read such prompts: needles in a haystack (one or several keys, values, queries), variable
tracking, common and frequent words. Values asked for are labelled as recalls; the answers of variable tracking,
word counting, and keys with several values stay unlabelled, because no single earlier place determines them.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from uuid import UUID

from tokenweight.corpus.documents import Document, Kind
from tokenweight.corpus.lexicon import SAYINGS, words
from tokenweight.corpus.manuscript import Fact, Manuscript

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def key_and_value(rng: Random, relation: str) -> tuple[str, str]:
    """Key and value in RULER's form: adjective-noun and 7 digits or a uuid; a variable's name and 5 digits."""
    if relation == "variable":
        return "".join(rng.choices(LETTERS, k=5)), str(rng.randint(10_000, 99_999))
    key = f"{rng.choice(words('adjective'))}-{rng.choice(words('noun'))}"
    return key, str(rng.randint(1_000_000, 9_999_999)) if relation == "number" else _uuid(rng)


def exercise(rng: Random, id: str, characters: int) -> Document:
    """One exercise of about `characters` characters."""
    manuscript = Manuscript()
    kind = rng.choices(("niah", "tracking", "common", "frequent"), (12, 2, 1, 1))[0]
    {"niah": _niah, "tracking": _tracking, "common": _common_words, "frequent": _frequent_words}[kind](
        rng, manuscript, characters
    )
    return manuscript.document(id, "exercises")


def _niah(rng: Random, manuscript: Manuscript, characters: int) -> None:
    """Needles, then questions up to the length: half of the text asks and answers."""
    noun = "uuid" if rng.random() < 0.08 else "number"
    values_per_key = rng.choice((1, 1, 1, 1, 2, 4))
    queries = rng.choice((1, 1, 2, 4)) if values_per_key == 1 else 1
    keys = rng.choice((queries, queries + 3, max(queries, characters // 200)))
    facts = _facts(rng, manuscript, noun, keys, values_per_key)
    many = queries > 1 or values_per_key > 1
    opening = f"Some special magic {noun}s are" if many else f"A special magic {noun} is"
    it, asked = ("them", f"{noun}s") if many else ("it", noun)
    manuscript.write(f"{opening} hidden within the following text. Make sure to memorize {it}. ")
    manuscript.write(f"I will quiz you about the {asked} afterwards.\n")
    needles = [fact for group in facts for fact in group]
    rng.shuffle(needles)
    needle = f"One of the special magic {noun}s for {{k}} is: {{v}}."
    _haystack(rng, manuscript, needles, needle, int(characters * rng.choice((0.4, 0.7))))
    while True:
        _ask(rng, manuscript, rng.sample(facts, queries), noun)
        if manuscript.length > characters - 180:
            return


def _facts(rng: Random, manuscript: Manuscript, relation: str, keys: int, values: int) -> list[list[Fact]]:
    groups = []
    for _ in range(keys):
        key = key_and_value(rng, relation)[0] if relation == "number" or rng.random() < 0.5 else _uuid(rng)
        groups.append([manuscript.new_fact(relation, key, key_and_value(rng, relation)[1]) for _ in range(values)])
    return groups


def _uuid(rng: Random) -> str:
    return str(UUID(int=rng.getrandbits(128)))


def _haystack(rng: Random, manuscript: Manuscript, needles: list[Fact], needle: str, characters: int) -> None:
    """Needles spread over filler up to the length; where they fill it alone, one to a line."""
    filler = max(0, characters - len(needles) * 70) // 75
    places = sorted(rng.randint(0, filler) for _ in needles)
    noise = rng.random() < 0.4
    joint = "\n" if noise or not filler else " "
    waiting = list(zip(places, needles, strict=True))
    for i in range(filler + 1):
        while waiting and waiting[0][0] == i:
            manuscript.write_template(needle, waiting.pop(0)[1])
            manuscript.write(joint)
        if i < filler:
            first, rest = (SAYINGS[0] if noise else rng.choice(SAYINGS)).split(" ", 1)
            manuscript.write(f"{first} ")
            manuscript.write(rest, Kind.EASY)
            manuscript.write(joint)
    if joint == " ":
        manuscript.write("\n")


def _ask(rng: Random, manuscript: Manuscript, asked: list[list[Fact]], noun: str) -> None:
    """One question about all keys of `asked`, and its answer."""
    wanted = [fact for group in asked for fact in group]
    keys = [group[0].key for group in asked]
    query = ", ".join(keys[:-1]) + ", and " + keys[-1] if len(keys) > 1 else keys[0]
    if len(wanted) == 1:
        question, answer = f"What is the special magic {noun} for ", f"The special magic {noun} for "
        end, verb = " mentioned in the provided text? ", " mentioned in the provided text is"
    else:
        question, answer = f"What are all the special magic {noun}s for ", f"The special magic {noun}s for "
        end, verb = " mentioned in the provided text? ", " mentioned in the provided text are"
    for before, after in ((question, end), (answer, verb)):
        manuscript.write(before)
        manuscript.write(query, Kind.NAME)
        manuscript.write(after)
    for i, fact in enumerate(wanted):
        last = "" if len(wanted) == 2 else ","
        manuscript.write(" " if i == 0 else f"{last} and " if i == len(wanted) - 1 else ", ")
        if len(asked) == len(wanted):
            manuscript.write_value(fact)
        else:  # several values of one key: which comes first is not determined
            manuscript.write(fact.value)
    manuscript.write(".\n")


def _tracking(rng: Random, manuscript: Manuscript, characters: int) -> None:
    names = ["".join(rng.choices(LETTERS, k=5)) for _ in range(5)]
    value = str(rng.randint(10_000, 99_999))
    lines = [f"VAR {names[0]} = {value}"] + [f"VAR {b} = VAR {a} " for a, b in pairwise(names)]
    filler = max(5, (characters - 500) // len(SAYINGS[0]))
    places = sorted(rng.randint(0, filler - 1) for _ in lines)
    manuscript.write("Memorize and track the chain(s) of variable assignment hidden in the following text. ")
    for i in range(filler):
        first, rest = SAYINGS[0].split(" ", 1)
        manuscript.write(f"{first} ")
        manuscript.write(rest, Kind.EASY)
        manuscript.write("\n")
        for line in (line for place, line in zip(places, lines, strict=True) if place == i):
            manuscript.write(f" {line} ")
    manuscript.write(f"\nQuestion: Find all variables that are assigned the value {value} in the text above. ")
    manuscript.write("Answer: According to the chain(s) of variable assignment in the text above, ")
    manuscript.write(f"5 variables are assgined the value {value}, they are: ")
    manuscript.write(" ".join(names) + "\n")


def _common_words(rng: Random, manuscript: Manuscript, characters: int) -> None:
    count = max(40, characters // 14)
    common = rng.sample(words("noun"), 10)
    listed = common * (count // 20) + rng.choices(words("noun"), k=count // 2)
    rng.shuffle(listed)
    manuscript.write("Below is a numbered list of words. In these words, some appear more often than others. ")
    manuscript.write("Memorize the ones that appear most often.\n")
    manuscript.write(" ".join(f"{i}. {word}" for i, word in enumerate(listed, 1)))
    manuscript.write("\nQuestion: What are the 10 most common words in the above list? Answer: ")
    manuscript.write("The top 10 words that appear most often in the list are:")
    manuscript.write(" ".join(f"{i}. {word}" for i, word in enumerate(common, 1)) + "\n")


def _frequent_words(rng: Random, manuscript: Manuscript, characters: int) -> None:
    coded = ["".join(rng.choices(LETTERS.lower(), k=6)) for _ in range(12)]
    text = rng.choices(["...", *coded], [12, *(12 / (i + 1) for i in range(12))], k=max(40, characters // 14))
    manuscript.write("Read the following coded text and track the frequency of each coded word. ")
    manuscript.write("Find the three most frequently appeared coded words. ")
    manuscript.write(" ".join(text))
    manuscript.write("\nQuestion: Do not provide any explanation. Please ignore the dots '....'. ")
    manuscript.write("What are the three most frequently appeared words in the above coded text? Answer: ")
    manuscript.write("According to the coded text above, the three most frequently appeared words are: ")
    manuscript.write(" ".join(coded[:3]) + "\n")
