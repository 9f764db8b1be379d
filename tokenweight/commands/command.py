"""What all commands share: from a function with described parameters to a command of cyclopts; and what is printed."""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tokenweight.flat import TEXTS, flat

_WIDE = 80  # letters of a terminal in which a column that stays whole leaves room for others


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function's parameters flat, and name its options: positional-only parameters are arguments.

    `--no-...` is only for what is on by default.
    """
    run, described = flat(function), []
    for parameter in inspect.signature(run).parameters.values():
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            name = TEXTS["options"].get(parameter.name, parameter.name).replace("_", "-")
            negative = f"--no-{name}" if parameter.default is True else ()
            shown = parameter.default not in (False, (), None)
            option = Parameter(f"--{name}", negative=negative, show_default=shown)
            parameter = parameter.replace(annotation=Annotated[parameter.annotation, option])
        described.append(parameter)
    run.__signature__ = inspect.Signature(described)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in described}
    return run


def show(files: Mapping[str, Path], as_json: bool, text: str | None = None) -> None:
    """A table (`text`; None: as its file has it), and where its files are."""
    text = files["json" if as_json else "md"].read_text(encoding="utf-8") if text is None else text
    if as_json:
        print(text, end="")
        return
    print_text(text, markdown=True)
    print("", *files.values(), sep="\n")


def print_text(text: str, markdown: bool = False) -> None:
    """As it is in a file or pipe, laid out in a terminal."""
    from rich.console import Console
    from rich.markdown import Markdown

    if not sys.stdout.isatty():
        print(text, end="")
    elif markdown:
        Console().print(Markdown(text))
    else:
        Console().print(text, end="", markup=False, highlight=False)


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, numbers_from: int = 99
) -> None:
    """Rows letter by letter; columns from `numbers_from` on are to the right, and these and the first stay whole.

    In a file or pipe a row is a line, its columns separated by tabs.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not sys.stdout.isatty():
        print(*filter(None, [title]), *map("\t".join, (headings, *rows)), sep="\n")
        return
    console, table = Console(), Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        is_number = number >= numbers_from
        justify: Any = "right" if is_number else "left"
        whole = (is_number or not number) and console.width >= _WIDE
        table.add_column(heading, overflow="fold", justify=justify, no_wrap=whole)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=1, ensure_ascii=False))


def note(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)
