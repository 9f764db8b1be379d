"""What commands print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

    from tokenweight.reports.model import Report, Style


def show(report: Report, files: dict[str, Path], style: Style = "both", as_json: bool = False) -> None:
    """A report's table, and where its files are."""
    from tokenweight.reports import markdown
    from tokenweight.reports.writing import styled

    shown = styled(report, style)
    if as_json:
        print(shown.model_dump_json(indent=2))
        return
    print_markdown(markdown.render(shown))
    print("", *files.values(), sep="\n")


def print_markdown(text: str) -> None:
    """Markdown as it is in a file or pipe, laid out in a terminal."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        print(text, end="")


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str | Text]], title: str | None = None, numbers_from: int = 99
) -> None:
    """Rows letter by letter; columns from `numbers_from` on are to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", justify="right" if number >= numbers_from else "left")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    Console().print(table)


def print_json(content: Any) -> None:
    """JSON for programs."""
    print(json.dumps(content, indent=1, ensure_ascii=False))


def note(*lines: str) -> None:
    """Lines beside the result, on stderr."""
    for line in lines:
        print(line, file=sys.stderr)
