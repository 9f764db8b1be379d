"""What pages of this project share: `head.html.jinja` (no network, no other file), one look (`base.css`), safe text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}  # nothing that ends the element or a line


def page_environment(templates: Path, finalize: Callable[[Any], Any] | None = None) -> Environment:
    """Templates of a directory, and the shared files; all text is escaped, an unknown name is an error.

    `finalize` is applied to each value before it is escaped.
    """
    return plain_environment(templates, Path(__file__).parent, autoescape=True, finalize=finalize)


def plain_environment(*templates: Path, **options: Any) -> Environment:
    """Templates of directories, of text that needs no escaping; an unknown name is an error. `options`: jinja2's."""
    return Environment(
        loader=FileSystemLoader(templates),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        **options,
    )


def script_json(value: Any) -> Markup:
    """JSON for a script element: no text in it can end the element. ValueError for NaN and infinity."""
    return Markup(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT))
