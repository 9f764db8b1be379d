"""The document on where the paper, the authors' code and this differ, for the page."""

from __future__ import annotations

import re
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

_DOCUMENT = Path(__file__).parents[1] / "divergences.md"
_LINK = re.compile(r'<a href="[^"]*">(.*?)</a>')  # the page leads nowhere outside of itself


def divergences() -> tuple[str, Markup]:
    """Heading and text of `reports/divergences.md`; its links become their words."""
    title, _, text = _DOCUMENT.read_text(encoding="utf-8").partition("\n")
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    html = _LINK.sub(r"\1", html).replace("<h2>", "<h3>").replace("</h2>", "</h3>")
    html = html.replace("<table>", '<div class="scroll"><table class="words">').replace("</table>", "</table></div>")
    return title.removeprefix("# "), Markup(html)
