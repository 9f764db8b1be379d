"""Draws one sentence of `tokenweight inspect`'s JSON as an SVG, as its page shows it: docs/weights.svg.

    tokenweight inspect tokenweight/assets/smoke-base NOVEL.txt --short-tokens 256 --out inspection
    python scripts/draw_weights.py inspection/inspection.json 802:839 docs/weights.svg

NOVEL.txt of the picture in README: the first of `documents(NovelCorpus(seed=5, document_tokens=2000), "validation")`,
its first 9,000 characters.
"""

import json
import sys
from bisect import bisect
from importlib.resources import files
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, CHARACTER, LINE, TOP = 860, 8.45, 46, 34


def colour(weight: float) -> str:
    """Of the page's palette: green above the mean of 1, red below."""
    palette = json.loads((files("tokenweight.inspection") / "palette.json").read_text())
    if weight > 1:
        return f"#{palette['light']['above'][bisect(palette['bounds']['weight'], weight) - 1]}"
    return f"#{palette['light']['below'][min(5, int((1 - weight) * 6))]}"


def draw(inspection: Path, first: int, last: int) -> str:
    """The SVG of the tokens from first up to last."""
    tokens = json.loads(inspection.read_text())["tokens"]
    x, y, parts = 10.0, float(TOP), []
    for text, weight in zip(tokens["text"][first:last], tokens["weight"][first:last], strict=True):
        wide = CHARACTER * len(text) + 2
        if x + wide > WIDTH - 10:
            x, y = 10.0, y + LINE
        parts.append(
            f'<rect x="{x:.1f}" y="{y - 17:.1f}" width="{wide - 1:.1f}" height="24" rx="3" fill="{colour(weight)}"/>'
        )
        parts.append(
            f'<text x="{x + 1:.1f}" y="{y:.1f}" xml:space="preserve" textLength="{wide - 3:.1f}">{escape(text)}</text>'
        )
        strength = ' font-weight="bold"' if weight > 1 else ""
        middle = x + wide / 2
        parts.append(
            f'<text x="{middle:.1f}" y="{y + 19:.1f}" class="w" text-anchor="middle"{strength}>{weight:.1f}</text>'
        )
        x += wide
    style = "text{font:14px monospace;fill:#1d1d1f}.w{font:9px sans-serif;fill:#6e6e73}"
    height = y + LINE - 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="A sentence, each token with its weight"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    source, span, target = sys.argv[1:]
    start, stop = map(int, span.split(":"))
    Path(target).write_text(draw(Path(source), start, stop), encoding="utf-8")
