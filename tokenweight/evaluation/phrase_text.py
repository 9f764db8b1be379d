"""The file that Table 1's phrase is taken from: its text, and what keeps it from being read. Loads no torch."""

from __future__ import annotations

from pathlib import Path

from tokenweight.corpus.files import decode
from tokenweight.errors import UserError
from tokenweight.recipes.schema import Phrase

SETTING = "--set evaluation.phrase"


def text_of(path: Path) -> str:
    """The text of a UTF-8 file, as a corpus would have it; UserError where it is none."""
    return decode(path, path.read_bytes())


def text_problem(settings: Phrase) -> str | None:
    """What keeps the given file from being read, in one line that says what to do; None where nothing does."""
    path = Path(settings.file or "")
    if not path.is_file():
        return (
            f"phrase {path}: no such file; give the text of Table 1's phrase with {SETTING}.file=FILE, or another text "
            f'with its {SETTING}.words="..."'
        )
    try:
        text = text_of(path)
    except OSError as error:
        return f"phrase {path}: cannot be read ({error.strerror}); give a text file that can"
    except UserError as error:
        return str(error)
    if settings.words and settings.words not in text:
        return f"phrase {path}: has no {settings.words!r}; give words as the file has them with {SETTING}.words=..."
    return None
