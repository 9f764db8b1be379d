"""An inspection as one page that needs nothing else: no network, no other file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tokenweight.inspection import palette
from tokenweight.inspection.wording import scorer_line, weighting_line, windows_line

_NAMED = ("tokenweight", "torch", "transformers")  # the first is unknown where the package is not installed
_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}  # nothing that ends the element or a line


def render(content: dict[str, Any]) -> str:
    """The page of an inspection's report."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html.jinja").render(
        content=content,
        data=script_json(_page_data(content["tokens"])),
        palette=palette,
        versions=", ".join(f"{name} {content['versions'][name]}" for name in _NAMED if name in content["versions"]),
        scorer=scorer_line(content),
        windows=windows_line(content),
        weighting=weighting_line(content),
        labels={
            "weight": palette.bound_labels(palette.WEIGHT_BOUNDS),
            "difference": palette.bound_labels(palette.DIFFERENCE_BOUNDS),
            "nll": palette.bound_labels(palette.NLL_BOUNDS),
        },
    )


def script_json(value: Any) -> Markup:
    """JSON for a script element: no text in it can end the element."""
    return Markup(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_IN_SCRIPT))


def _page_data(tokens: dict[str, Any]) -> dict[str, Any]:
    """What the page's script reads: one array per quantity, rounded to what it shows."""
    return {
        "text": tokens["text"],
        "added": tokens["added"],
        "long": _rounded(tokens["long_nll"]),
        "short": _rounded(tokens["short_nll"]),
        "weight": [None if value is None else float(f"{value:.4g}") for value in tokens["weight"]],
        "context": tokens["short_context_tokens"],
        "bounds": {
            "weight": palette.WEIGHT_BOUNDS,
            "difference": palette.DIFFERENCE_BOUNDS,
            "nll": palette.NLL_BOUNDS,
        },
    }


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]
