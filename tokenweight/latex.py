"""LaTeX from templates and from any text: special characters escaped, and nothing that stops pdflatex.

pdflatex with T1 fonts has Latin letters and common punctuation; Greek letters come from mathematics, an accent that no
font has with its letter is set above or below it, and what is left is spelled as its Unicode code point. pylatexenc
was tried in place of the tables below: it prints Ħ and Ŧ as other letters (with a macron), and lacks most of the rest too.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

CODE_POINTS = "{[}U+"  # how spelled characters begin

_KEEP_APART = "\n"  # between characters that would join; escaped text has no line breaks of its own

_ESCAPES = {
    _KEEP_APART: "{}",
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # after \\ it would begin an optional argument
    "]": "{]}",
    "*": "{*}",  # likewise
    "—": "---",
    "–": "--",
    "…": r"\ldots{}",
    "’": "'",
    "\N{NON-BREAKING HYPHEN}": "-",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "∈": r"$\in$",
    "∑": r"$\sum$",
    "√": r"$\surd$",
    "←": r"$\leftarrow$",
    "→": r"$\rightarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "⇑": r"$\Uparrow$",
    "⇓": r"$\Downarrow$",
}
# What LaTeX's UTF-8 tables give T1 and text companion fonts.
_PRINTED = re.compile(r"[ -~¡-¬®-ĥĨ-ķĹ-ľŁ-ňŊ-ťŨ-ž‐‒-—‖‘-‚“-„†-•…‰‹›€™]")
_LIGATURES = re.compile(r"(?<=[-,'’])(?=[-,'’])")  # -- would print as a dash, '' and ,, as quotation marks
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": r"\`",
    "\N{COMBINING ACUTE ACCENT}": r"\'",
    "\N{COMBINING CIRCUMFLEX ACCENT}": r"\^",
    "\N{COMBINING TILDE}": r"\~",
    "\N{COMBINING MACRON}": r"\=",
    "\N{COMBINING BREVE}": r"\u",
    "\N{COMBINING DOT ABOVE}": r"\.",
    "\N{COMBINING DIAERESIS}": r"\"",
    "\N{COMBINING RING ABOVE}": r"\r",
    "\N{COMBINING DOUBLE ACUTE ACCENT}": r"\H",
    "\N{COMBINING CARON}": r"\v",
    "\N{COMBINING DOT BELOW}": r"\d",
    "\N{COMBINING CEDILLA}": r"\c",
    "\N{COMBINING OGONEK}": r"\k",
    "\N{COMBINING MACRON BELOW}": r"\b",
}
_GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER (FINAL )?(\w+)")
_GREEK_COMMANDS = {"lamda": "lambda", "epsilon": "varepsilon", "phi": "varphi"}  # where not the name in Unicode
# Capitals that LaTeX has not, since they look as Latin ones do; omicron likewise.
_GREEK_AS_LATIN = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧο", "ABEZHIKMNOPTYXo", strict=True))


def environment(templates: Path) -> Environment:
    """Templates of LaTeX: `<< value >>`, `<% statement %>`, `<# comment #>`; an unknown name is an error."""
    return Environment(
        loader=FileSystemLoader(templates),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,
    )


def escape(text: str) -> str:
    """Text that LaTeX prints as it is, on one line; what it cannot print stands as its code point, {[}U+4E2D{]}."""
    flat = _LIGATURES.sub(_KEEP_APART, " ".join(unicodedata.normalize("NFC", text).split()))
    parts = []
    for known, characters in groupby(flat, key=lambda character: bool(printed(character))):
        run = list(characters)
        parts.append("".join(map(printed, run)) if known else _code_points(run))
    return "".join(parts)


def _code_points(characters: list[str]) -> str:
    return "{[}" + " ".join(f"U+{ord(character):04X}" for character in characters) + "{]}"


def printed(character: str) -> str:
    """One character as LaTeX, "" where it has none."""
    if escaped := _ESCAPES.get(character):
        return escaped
    if _PRINTED.fullmatch(character):
        return character
    return _greek(character) or _accented(character)


def _greek(character: str) -> str:
    if latin := _GREEK_AS_LATIN.get(character):
        return rf"\textit{{{latin}}}" if latin == "o" else latin
    name = _GREEK.fullmatch(unicodedata.name(character, ""))
    if not name or not "Α" <= character <= "ω":
        return ""
    letter = name[3].lower()
    if name[1] == "CAPITAL":
        return rf"$\{'Lambda' if letter == 'lamda' else letter.capitalize()}$"
    return rf"$\{'var' if name[2] else ''}{_GREEK_COMMANDS.get(letter, letter)}$"


def _accented(character: str) -> str:
    letter, *marks = list(unicodedata.normalize("NFD", character))
    if len(marks) == 1 and marks[0] in _ACCENTS and letter.isascii() and letter.isalpha():
        return rf"{_ACCENTS[marks[0]]}{{{letter}}}"
    return ""
