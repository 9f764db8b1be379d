"""What an inspection writes from its numbers: one page, and a LaTeX table in the form of Table 1."""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_left
from pathlib import Path
from typing import Any

from tokenweight.latex import environment, printed
from tokenweight.webpage import page_environment, script_json

TOKENS_PER_BLOCK = 13  # columns of Table 1
# Levels and colours of weights and NLLs, the same in the page and in the LaTeX table. Above 1 is a bluish green and below
# 1 a pale vermilion: two hues that readers with any colour vision deficiency tell apart. In grey, darker is farther from
# 1, and what is above 1 is underlined too, thicker with the weight. A level is how many of the bounds (NLLs: of nats) a
# value exceeds.
PALETTE: dict[str, Any] = json.loads((Path(__file__).parent / "palette.json").read_text(encoding="utf-8"))
WEIGHT_BOUNDS: list[float] = PALETTE["bounds"]["weight"]

_NAMED = ("tokenweight", "torch", "transformers")  # the first is unknown where the package is not installed
_MARKS = {"\n": r"$\hookleftarrow$", "\t": r"$\rightarrow$", "'": r"\textquotesingle{}", "’": "’"}
_LIGATURES = re.compile(r"(?<=-)(?=-)|(?<=,)(?=,)")  # -- would print as a dash, ,, as a quotation mark
_REST_OF_A_CHARACTER = r"$\triangleleft$"


def weight_level(weight: float) -> int:
    """-6 to -1 below weight 1, 0 at 1, 1 to 6 above, in equal ratios on both sides."""
    if weight >= 1:
        return bisect_left(WEIGHT_BOUNDS, weight)
    return -(bisect_left(WEIGHT_BOUNDS, 1 / weight) if weight > 0 else len(WEIGHT_BOUNDS))


def in_words(content: dict[str, Any]) -> dict[str, str]:
    """The settings of an inspection's report for the console, the page and the table: scorer, windows, weighting."""
    scorer, settings, weighting = content["scorer"], content["settings"], content["settings"]["weighting"]
    count = settings["windows"]
    words = [weighting["score"], weighting["postprocessing"]]
    words += [f"{name} {weighting[name]:g}" for name in ("lambda", "kappa") if weighting[name] is not None]
    unfrozen, uniform = scorer["kind"] == "unfrozen", weighting["postprocessing"] == "uniform"
    return {
        "scorer": "the checkpoint itself (unfrozen)"
        if unfrozen
        else f"{scorer['name']} (frozen, {scorer['sha256'][:8]})",
        "windows": f"{count} window{'s' if count > 1 else ''} of {settings['short_tokens']:,} tokens, "
        f"one every {settings['stride_tokens']:,}",
        "weighting": "uniform" if uniform else ", ".join(words),
    }


def page(content: dict[str, Any]) -> str:
    """The page of an inspection's report: no network, no other file; its script reads one array per quantity."""
    versions = content["versions"]
    template = page_environment(Path(__file__).parent).get_template("page.html.jinja")
    return template.render(
        content=content,
        data=script_json(content["tokens"] | {"bounds": PALETTE["bounds"]}),
        palette=PALETTE,
        versions=", ".join(f"{name} {versions[name]}" for name in _NAMED if name in versions),
        **in_words(content),
    )


def table(content: dict[str, Any], span: range) -> str:
    """The tokens in `span` (of an inspection's report) in LaTeX: a document by itself, or to `\\input` in one."""
    tokens = content["tokens"]
    templates = environment(Path(__file__).parent)
    templates.filters |= {"tex": escape, "nats": nats, "box": _box}
    return templates.get_template("span.tex.jinja").render(
        blocks=[span[first : first + TOKENS_PER_BLOCK] for first in range(0, len(span), TOKENS_PER_BLOCK)],
        shown=[escape(tokens["added"].get(str(index), "")) or token(text) for index, text in enumerate(tokens["text"])],
        palette=PALETTE["light"],
        first=span.start,
        last=span.stop - 1,
        content=content,
        **in_words(content),
    )


def escape(text: str) -> str:
    """Text that LaTeX prints as it is, line breaks and tabs as marks; other characters as their code point."""
    characters = (
        _MARKS.get(character) or printed(character) or rf"{{\scriptsize U+{ord(character):04X}}}"
        for character in unicodedata.normalize("NFC", text)
    )
    return _LIGATURES.sub("{}", "".join(characters))


def token(text: str) -> str:
    """A token for a cell: without the space that begins it, as in Table 1, unless there is nothing else."""
    if not text:
        return _REST_OF_A_CHARACTER
    return escape(text.removeprefix(" ")) or r"\textvisiblespace{}"


def nats(value: float | None) -> str:
    """The size of a number of nats with two decimals as Table 1 has them; what would round to nothing is "<0.01"."""
    if value is None:
        return "--"
    return r"\textless{}0.01" if 0 < abs(value) < 0.005 else f"{abs(value):.2f}"


def _box(text: str, weight: float | None) -> str:
    level = 0 if weight is None else weight_level(weight)
    return rf"\colorbox{{tw{'Above' if level > 0 else 'Below'}{abs(level)}}}{{{text}}}" if level else text
