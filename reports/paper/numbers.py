"""Look up what the paper prints: `paper_number("table-3", "uniform", "longbench")` is 44.37.

`by_row.json` holds the cells as the source prints them, one string a row, separated by blanks:
`**bold**`, `*italic*`, `__underlined__`, `-` for a cell left empty. The tests hold a second,
independent transcription by column against it. Two entries are of sentences, not of a table: `prose` (rounded numbers) and
`counts` (exact ones). Table 1's `shade` is the source's depth of colour, + green and - red; Table 2 has
arrows and words alone; the row `uniform` of a figure is its dotted baseline.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from tokenweight.reports.model import Mark, PaperNumber

_WRAPPERS: tuple[tuple[str, Mark], ...] = (("**", "bold"), ("__", "underline"), ("*", "italic"))


@cache
def paper_cells() -> dict[str, PaperNumber]:
    """All that was transcribed, by its place: `table-3/uniform/longbench`, `prose/pearson/printed`."""
    tables: dict[str, Any] = json.loads((Path(__file__).parent / "by_row.json").read_text(encoding="utf-8"))
    return {
        f"{table}/{row}/{column}": parse(text)
        for table, entry in tables.items()
        for row, line in entry["rows"].items()
        for column, text in zip(entry["columns"], line.split(), strict=True)
    }


def place_name(place: str) -> str:
    """`table-3/uniform/ruler` as "Table 3 uniform ruler", `prose/pearson/printed` as "text pearson"."""
    table, *rest = place.removesuffix("/printed").split("/")
    heading = table.replace("-", " ").capitalize() if table.startswith(("table-", "figure-")) else "text"
    return " ".join((heading, *rest))


def paper_tables() -> tuple[str, ...]:
    return tuple(dict.fromkeys(place.partition("/")[0] for place in paper_cells()))


def paper_number(table: str, row: str, column: str | None) -> PaperNumber | None:
    """One cell; None where the paper has no such table, row or column."""
    return paper_cells().get(f"{table}/{row}/{column}")


def parse(text: str) -> PaperNumber:
    """A printed cell with its emphasis: "**46.48**" is 46.48, two decimals, bold."""
    emphasis: tuple[Mark, ...] = ()
    for wrapper, mark in _WRAPPERS:
        if text.startswith(wrapper) and text.endswith(wrapper) and len(text) > 2 * len(wrapper):
            text, emphasis = text[len(wrapper) : -len(wrapper)], (*emphasis, mark)
    number = re.fullmatch(r"[+-]?\d+(?:\.(\d+))?", text)
    decimals = len(number[1] or "") if number else 0
    return PaperNumber(printed=text, value=float(text) if number else None, decimals=decimals, emphasis=emphasis)
