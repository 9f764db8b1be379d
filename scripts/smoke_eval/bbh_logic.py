"""BBH tasks of logic, order and counting: items of our own in each task's form, with computed answers."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from tokenweight.corpus.manuscript import KEEPSAKES, NAMES

Item = tuple[str, str]  # input, target
LETTERS = "ABCDEFGHIJ"
COUNT_WORDS = {3: "three", 5: "five", 7: "seven"}
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")


def options(rng: Random, right: str, wrong: list[str]) -> tuple[str, str]:
    """Lettered options in random order, and the right one's letter."""
    listed = [right, *wrong]
    rng.shuffle(listed)
    text = "\n".join(f"({letter}) {option}" for letter, option in zip(LETTERS, listed, strict=False))
    return f"Options:\n{text}", f"({LETTERS[listed.index(right)]})"


def boolean_expressions(rng: Random) -> Item:
    a, b, c = (rng.choice((True, False)) for _ in range(3))
    return f"not ( {a} ) and {b} or ( {c} ) is", str((not a and b) or c)


def dyck_languages(rng: Random) -> Item:
    pairs = {"[": "]", "(": ")", "{": "}", "<": ">"}
    opened = [rng.choice(list(pairs)) for _ in range(rng.randint(2, 4))]
    inner = rng.choice(list(pairs))
    text = " ".join([*opened, inner, pairs[inner]])
    close = " ".join(pairs[bracket] for bracket in reversed(opened))
    return (
        "Complete the rest of the sequence, making sure that the parentheses are closed properly. Input: " + text,
        close,
    )


def formal_fallacies(rng: Random) -> Item:
    one, two, other = rng.sample(NAMES, 3)
    first = f"First, every friend of {one} is a cousin of {two}. Second, {other} is a "
    valid = rng.random() < 0.5
    rest = (
        f"friend of {one}. Therefore, {other} is a cousin of {two}."
        if valid
        else f"cousin of {two}. Therefore, {other} is a friend of {one}."
    )
    text = f'"Here comes a perfectly valid argument: {first}{rest}"\n'
    text += "Is the argument, given the explicitly stated premises, deductively valid or invalid?\n"
    return text + "Options:\n- valid \n- invalid", "valid" if valid else "invalid"


def logical_deduction(rng: Random, count: int) -> Item:
    things = rng.sample(KEEPSAKES, count)
    listed = [f"the {thing}" for thing in rng.sample(things, count)]
    text = (
        f"The following paragraphs each describe a set of {COUNT_WORDS[count]} objects arranged in a fixed order. The "
        f"statements are logically consistent within each paragraph. On a shelf, there are {COUNT_WORDS[count]} "
        f"things: {', '.join(listed[:-1])}, and {listed[-1]}. "
    )
    text += " ".join(f"The {a} is to the left of the {b}." for a, b in pairwise(things))
    place = rng.randrange(count)
    which = "leftmost" if place == 0 else f"{ORDINALS[place]} from the left"
    asked = [f"The {thing} is the {which}" for thing in things]
    choices, target = options(rng, asked[place], [one for one in asked if one != asked[place]])
    return f"{text}\n{choices}", target


def multistep_arithmetic_two(rng: Random) -> Item:
    a, b, c, d = (rng.randint(-9, 9) for _ in range(4))
    e, f = rng.randint(-9, 9), rng.randint(-9, 9)
    return f"(({a} + {b} * {c}) - ({d} * {e} + {f})) =", str((a + b * c) - (d * e + f))


def navigate(rng: Random) -> Item:
    n = rng.randint(2, 9)
    back = rng.choice((n, n + 1))
    steps = f"Take {n} steps. Turn around. Take {back} steps."
    text = f"If you follow these instructions, do you return to the starting point? {steps}\nOptions:\n- Yes\n- No"
    return text, "Yes" if back == n else "No"


def object_counting(rng: Random) -> Item:
    things = rng.sample(KEEPSAKES, rng.randint(3, 6))
    listed = [f"a {thing}" for thing in things]
    return f"I have {', '.join(listed[:-1])}, and {listed[-1]}. How many objects do I have?", str(len(things))


def tracking_shuffled_objects(rng: Random, count: int) -> Item:
    players, balls = rng.sample(NAMES, count), rng.sample(KEEPSAKES, count)
    held = dict(zip(players, balls, strict=True))
    has = [f"{player} has the {ball}" for player, ball in held.items()]
    swaps = []
    for word in ("First", *["Then"] * (count - 2), "Finally"):
        one, other = rng.sample(players, 2)
        held[one], held[other] = held[other], held[one]
        swaps.append(f"{word}, {one} and {other} swap presents.")
    asked = rng.choice(players)
    choices, target = options(rng, held[asked], [ball for ball in balls if ball != held[asked]])
    return (
        f"{', '.join(players[:-1])}, and {players[-1]} are holding a gift exchange. At the start of the event, they "
        f"are each holding a present: {', '.join(has[:-1])}, and {has[-1]}.\nAs the event progresses, pairs of people "
        f"swap gifts. {' '.join(swaps)} At the end of the event, {asked} has the\n{choices}",
        target,
    )


def web_of_lies(rng: Random) -> Item:
    people = rng.sample(NAMES, 5)
    truthful = rng.random() < 0.5
    text = f"Question: {people[0]} {'tells the truth' if truthful else 'lies'}."
    for before, speaker in pairwise(people):
        says = rng.random() < 0.5
        text += f" {speaker} says {before} {'tells the truth' if says else 'lies'}."
        truthful = says == truthful
    return f"{text} Does {people[-1]} tell the truth?", "Yes" if truthful else "No"


def word_sorting(rng: Random) -> Item:
    words = rng.sample(KEEPSAKES, rng.randint(3, 6))
    return "Sort the following words alphabetically: List: " + " ".join(words), " ".join(sorted(words))


def temporal_sequences(rng: Random) -> Item:
    name, *witnesses = rng.sample(NAMES, 4)
    hours = [9, 11, 13, 15, 17]
    spans = [f"{_clock(a)} to {_clock(b)}" for a, b in pairwise(hours)]
    free = rng.randrange(4)
    seen = [span for i, span in enumerate(spans) if i != free]
    text = (
        f"Today, {name} went to the market. Between what times could they have gone?\nWe know that:\n"
        f"{name} woke up at 9am.\n"
    )
    text += "".join(
        f"{witness} saw {name} sitting by the river from {span}.\n"
        for witness, span in zip(witnesses, seen, strict=True)
    )
    text += f"The market was closed after 5pm.\nBetween what times could {name} have gone to the market?\n"
    choices, target = options(rng, spans[free], seen)
    return text + choices, target


def _clock(hour: int) -> str:
    return f"{hour}am" if hour < 12 else f"{hour - 12 or 12}pm"
