"""BBH tasks of language and knowledge: items of our own in each task's form."""

from __future__ import annotations

from datetime import date, timedelta
from random import Random

from smoke_eval.bbh_logic import Item, options
from tokenweight.corpus.manuscript import KEEPSAKES, NAMES, PLACES, TRADES

COLORS = ("red", "blue", "green", "yellow", "black", "white", "brown", "purple")
YES_NO = "Options:\n- Yes\n- No"


def causal_judgement(rng: Random) -> Item:
    name, thing = rng.choice(NAMES), rng.choice(KEEPSAKES)
    meant = rng.random() < 0.5
    deed = f"wanted to break the {thing} and broke it" if meant else f"slipped on the wet floor and broke the {thing}"
    return (
        "How would a typical person answer each of the following questions about causation?\n"
        f"{name} {deed}. Did {name} intentionally break the {thing}?\n{YES_NO}",
        "Yes" if meant else "No",
    )


def date_understanding(rng: Random) -> Item:
    today = date(2001, 1, 1) + timedelta(days=rng.randrange(7000))
    days, word = rng.choice(((1, "tomorrow"), (-1, "yesterday"), (7, "one week from today")))
    wrong = [today + timedelta(days=days + shift) for shift in (3, -4, 30)]
    choices, target = options(rng, _us(today + timedelta(days=days)), [_us(one) for one in wrong])
    return f"Today is {_us(today)}. What is the date {word} in MM/DD/YYYY?\n{choices}", target


def _us(day: date) -> str:
    return day.strftime("%m/%d/%Y")


def disambiguation_qa(rng: Random) -> Item:
    one, other = rng.sample(TRADES, 2)
    text = (
        "In the following sentences, explain the antecedent of the pronoun (which thing the pronoun refers to), or "
        f"state that it is ambiguous.\nSentence: The {one} thanked the {other} because she "
    )
    kind = rng.randrange(2)
    text += ("had received help" if kind == 0 else "had given help") + ".\nOptions:\n"
    right = ("A", "B")[kind]
    verb = "received" if kind == 0 else "given"
    return f"{text}(A) The {one} had {verb} help\n(B) The {other} had {verb} help\n(C) Ambiguous", f"({right})"


SHAPES = {
    "line": [(1.0, 2.0), (9.5, 7.25)],
    "triangle": [(1.0, 1.0), (9.0, 1.0), (5.0, 8.0), (1.0, 1.0)],
    "pentagon": [(5.0, 1.0), (9.0, 4.0), (7.5, 9.0), (2.5, 9.0), (1.0, 4.0), (5.0, 1.0)],
    "hexagon": [(3.0, 1.0), (7.0, 1.0), (9.0, 5.0), (7.0, 9.0), (3.0, 9.0), (1.0, 5.0), (3.0, 1.0)],
}


def geometric_shapes(rng: Random) -> Item:
    shape = rng.choice(list(SHAPES))
    shift, scale = rng.randint(0, 40), rng.randint(1, 5)
    points = [f"{x * scale + shift:.2f},{y * scale + shift:.2f}" for x, y in SHAPES[shape]]
    choices, target = options(rng, shape, [name for name in (*SHAPES, "circle", "octagon") if name != shape])
    return f'This SVG path element <path d="M {" L ".join(points)}"/> draws a\n{choices}', target


def hyperbaton(rng: Random) -> Item:
    size, color, thing = rng.choice(("big", "little", "huge")), rng.choice(COLORS), rng.choice(KEEPSAKES)
    choices, target = options(rng, f"{size} {color} {thing}", [f"{color} {size} {thing}"])
    return f"Which sentence has the correct adjective order:\n{choices}", target


BOOKS = ("The Lost {}", "The Golden {}", "The {} of the King", "Beyond the {}")
MANUALS = ("How to Mend a {}", "How to Buy a {}", "How to Clean a {}")


def movie_recommendation(rng: Random) -> Item:
    tales = [book.format(rng.choice(KEEPSAKES).title()) for book in BOOKS]
    manuals = [manual.format(rng.choice(KEEPSAKES).title()) for manual in MANUALS]
    choices, target = options(rng, tales[3], manuals)
    return f"Find a movie similar to {', '.join(tales[:3])}:\n{choices}", target


def penguins_in_a_table(rng: Random) -> Item:
    rows = {name: [rng.randint(2, 12), rng.randint(40, 90), rng.randint(9, 19)] for name in rng.sample(NAMES, 4)}
    table = " ".join(f"{name}, {age}, {height}, {weight}" for name, (age, height, weight) in rows.items())
    name, column = rng.choice(list(rows)), rng.randrange(3)
    word, right = ("age", "height", "weight")[column], rows[name][column]
    choices, target = options(rng, str(right), [str(right + shift) for shift in (1, 2, 5, 7)])
    return (
        "Here is a table where the first line is a header and each subsequent line is a penguin:  name, age, "
        f"height (cm), weight (kg) {table}  What is the {word} of {name}?\n{choices}",
        target,
    )


def reasoning_about_colored_objects(rng: Random) -> Item:
    things, colors = rng.sample(KEEPSAKES, 3), rng.sample(COLORS, 3)
    listed = [f"a {color} {thing}" for color, thing in zip(colors, things, strict=True)]
    asked = rng.randrange(3)
    choices, target = options(rng, colors[asked], [color for color in COLORS if color != colors[asked]])
    return (
        f"On the table, there is {listed[0]}, {listed[1]}, and {listed[2]}. "
        f"What color is the {things[asked]}?\n{choices}",
        target,
    )


PUNS = (
    ("the silver spoon", "the silver spoof", ("the silver spoonk", "the silvtr spoon", "the silverr spoon")),
    ("the long winter", "the wrong winter", ("the lonng winter", "the long wintr", "te long winter")),
    ("the last bell", "the last belly", ("the lasst bell", "the last bwll", "thr last bell")),
    ("house of roses", "house of noses", ("house of rosess", "hous of roses", "housq of roses")),
)


def ruin_names(rng: Random) -> Item:
    name, edit, wrong = rng.choice(PUNS)
    choices, target = options(rng, edit, list(wrong))
    return f"Which of the following is a humorous edit of this artist or movie name: '{name}'?\n{choices}", target


ERRORS = (
    "Modifiers or Adjectives", "Numerical Values", "Negation or Antonyms", "Named Entities", "Dropped Content", "Facts",
)  # fmt: skip


def salient_translation_error_detection(rng: Random) -> Item:
    place, other = rng.sample(PLACES, 2)
    count = rng.randint(12, 90)
    source = f"In {place} stehen {count} alte Häuser."
    wrong = {
        "Named Entities": f"There are {count} old houses in {other}.",
        "Numerical Values": f"There are {count + 7} old houses in {place}.",
        "Modifiers or Adjectives": f"There are {count} white houses in {place}.",
    }
    kind = rng.choice(list(wrong))
    text = "\n".join(f"({letter}) {error}" for letter, error in zip("ABCDEF", ERRORS, strict=True))
    return (
        f"The following translations from German to English contain a particular error. That error will be one of "
        f"the following types: {', '.join(ERRORS)}. Please identify that error.  Source: {source}\n"
        f"Translation: {wrong[kind]}\nThe translation contains an error pertaining to\nOptions:\n{text}",
        f"({'ABCDEF'[ERRORS.index(kind)]})",
    )


def snarks(rng: Random) -> Item:
    thing = rng.choice(KEEPSAKES)
    choices, target = options(
        rng, f"Oh great, the {thing} broke again, just what I needed", [f"Oh dear, the {thing} broke again"]
    )
    return f"Which statement is sarcastic?\n{choices}", target


POSSIBLE = ("rode the horse over the last fence", "sailed the boat around the mark", "threw the dart into the board")
IMPOSSIBLE = ("rode the dart over the last fence", "sailed the horse around the mark", "threw the boat into the board")


def sports_understanding(rng: Random) -> Item:
    plausible = rng.random() < 0.5
    deed = rng.choice(POSSIBLE if plausible else IMPOSSIBLE)
    return f'Is the following sentence plausible? "{rng.choice(NAMES)} {deed}."', "yes" if plausible else "no"
