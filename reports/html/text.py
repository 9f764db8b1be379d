"""Text from outside: made visible, and cut where it is long."""

from __future__ import annotations

import math
import re
from typing import Any

from markupsafe import Markup

# Control characters (but tab and line feed), what changes the direction of text, what has no width, lone surrogates.
_INVISIBLE = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """`text` with each character that cannot be seen, or that reorders others, spelled as [U+202E]."""
    return _INVISIBLE.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


def shown(value: Any) -> Any:
    """What a template prints: visible text; anything else, and markup, as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def plain(value: Any) -> Any:
    """JSON whose texts are visible; numbers that JSON does not have become text."""
    match value:
        case str():
            return visible(value)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {visible(str(key)): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value


def excerpt(text: str, head: int, tail: int = 0) -> list[str | int]:
    """[text] where it is short, else [its first `head` characters, how many are left out, its last `tail`]."""
    left_out = len(text) - head - tail
    if left_out <= 0:
        return [text]
    return [text[:head], left_out, text[len(text) - tail :]]
