"""An inspection as one page that needs nothing else: no network, no other file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenweight.inspection.report import PALETTE, in_words
from tokenweight.webpage import page_environment, script_json

_NAMED = ("tokenweight", "torch", "transformers")  # the first is unknown where the package is not installed


def render(content: dict[str, Any]) -> str:
    """The page of an inspection's report; its script reads one array per quantity, rounded to what it shows."""
    tokens, versions = content["tokens"], content["versions"]
    data = {
        "text": tokens["text"],
        "added": tokens["added"],
        "long": [None if value is None else round(value, 4) for value in tokens["long_nll"]],
        "short": [None if value is None else round(value, 4) for value in tokens["short_nll"]],
        "weight": [None if value is None else float(f"{value:.4g}") for value in tokens["weight"]],
        "context": tokens["short_context_tokens"],
        "bounds": PALETTE["bounds"],
    }
    template = page_environment(Path(__file__).parent).get_template("page.html.jinja")
    return template.render(
        content=content,
        data=script_json(data),
        palette=PALETTE,
        versions=", ".join(f"{name} {versions[name]}" for name in _NAMED if name in versions),
        **in_words(content),
    )
