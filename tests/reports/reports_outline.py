"""An HTML page as tests look at it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any


class Outline(HTMLParser):
    """Elements with their attributes, cells with their text, and what scripts hold."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.cells: dict[str, str] = {}
        self._cell: str | None = None
        self.feed(page)
        self.data: dict[str, Any] = json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.elements.append((tag, found))
        if tag == "script":
            self.scripts.append("")
        if found.get("data-cell") is not None:
            self._cell = str(found["data-cell"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "button":
            self._cell = None

    def handle_data(self, text: str) -> None:
        if self.elements and self.elements[-1][0] == "script" and self.scripts and text.strip():
            self.scripts[-1] += text
        if self._cell is not None:
            self.cells[self._cell] = self.cells.get(self._cell, "") + text
