"""What commands print of a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tokenweight.reports.model import Report, Style


def show(report: Report, files: dict[str, Path], style: Style = "both", as_json: bool = False) -> None:
    from tokenweight.reports import markdown
    from tokenweight.reports.styles import styled

    shown = styled(report, style)
    if as_json:
        typer.echo(shown.model_dump_json(indent=2))
        return
    print_markdown(markdown.render(shown))
    typer.echo()
    for path in files.values():
        typer.echo(str(path))


def print_markdown(text: str) -> None:
    """Markdown as it is in a file or pipe, laid out in a terminal."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        typer.echo(text, nl=False)
