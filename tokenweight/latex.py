"""LaTeX from templates and from any text: special characters escaped, and nothing that stops pdflatex.

pdflatex with T1 fonts has Latin letters and common punctuation; Greek letters come from mathematics, an accent that no
font has with its letter is set above or below it, and what is left is spelled as its Unicode code point. pylatexenc
was tried in place of the tables in latex.json: it prints Ħ and Ŧ as other letters (with a macron), and lacks most of the rest too.
"""

import json
import re
import unicodedata
from itertools import groupby
from pathlib import Path

from jinja2 import Environment

from tokenweight.webpage import plain_environment

CODE_POINTS = "{[}U+"  # how spelled characters begin

_KEEP_APART = "\n"  # between characters that would join; escaped text has no line breaks of its own
# By character; after \\ a `[` would begin an optional argument, a `*` likewise; LaTeX has no Greek letters that look as
# Latin ones do.
_TABLES = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_ESCAPES: dict[str, str] = {_KEEP_APART: "{}", **_TABLES["characters"], **_TABLES["greek"]}
_ACCENTS: dict[str, str] = _TABLES["accents"]  # by the code point of the combining character
# What LaTeX's UTF-8 tables give T1 and text companion fonts.
_PRINTED = re.compile(r"[ -~¡-¬®-ĥĨ-ķĹ-ľŁ-ňŊ-ťŨ-ž‐‒-—‖‘-‚“-„†-•…‰‹›€™]")
_LIGATURES = re.compile(r"(?<=[-,'’])(?=[-,'’])")  # -- would print as a dash, '' and ,, as quotation marks


def environment(templates: Path) -> Environment:
    """Templates of LaTeX: `<< value >>`, `<% statement %>`, `<# comment #>`; an unknown name is an error."""
    return plain_environment(templates, **_TABLES["delimiters"])


def escape(text: str) -> str:
    """Text that LaTeX prints as it is, on one line; what it cannot print becomes its code point, {[}U+4E2D{]}."""
    flat = _LIGATURES.sub(_KEEP_APART, " ".join(unicodedata.normalize("NFC", text).split()))
    parts: list[str] = []
    for known, run in groupby(flat, key=lambda character: bool(printed(character))):
        if known:
            parts += map(printed, run)
        else:
            parts.append("{[}" + " ".join(f"U+{ord(character):04X}" for character in run) + "{]}")
    return "".join(parts)


def printed(character: str) -> str:
    """One character as LaTeX, "" where it has none."""
    if escaped := _ESCAPES.get(character):
        return escaped
    if _PRINTED.fullmatch(character):
        return character
    letter, *marks = list(unicodedata.normalize("NFD", character))
    accent = _ACCENTS.get(f"{ord(marks[0]):04X}") if len(marks) == 1 else None
    return rf"{accent}{{{letter}}}" if accent and letter.isascii() and letter.isalpha() else ""
