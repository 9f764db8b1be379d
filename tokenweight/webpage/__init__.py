"""What pages of this project share: one look (`base.css`), safe text, no network, no other file.

A template says `{% include "base.css" %}` and, in its head, `{{ content_security_policy }}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}  # nothing that ends the element or a line
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page_environment(templates: Path, finalize: Callable[[Any], Any] | None = None) -> Environment:
    """Templates of a directory, and the shared files; all text is escaped, an unknown name is an error.

    `finalize` is applied to each value before it is escaped.
    """
    environment = Environment(
        loader=FileSystemLoader([templates, Path(__file__).parent]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        finalize=finalize,
    )
    environment.globals["content_security_policy"] = Markup(
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    )
    return environment


def script_json(value: Any) -> Markup:
    """JSON for a script element: no text in it can end the element. ValueError for NaN and infinity."""
    return Markup(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT))
