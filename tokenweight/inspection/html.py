"""An inspection as one page that needs nothing else: no network, no other file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenweight.inspection import palette
from tokenweight.inspection.report import in_words
from tokenweight.webpage import page_environment, script_json

_NAMED = ("tokenweight", "torch", "transformers")  # the first is unknown where the package is not installed


def render(content: dict[str, Any]) -> str:
    """The page of an inspection's report."""
    return (
        page_environment(Path(__file__).parent)
        .get_template("page.html.jinja")
        .render(
            content=content,
            data=script_json(_page_data(content["tokens"])),
            palette=palette,
            versions=", ".join(f"{name} {content['versions'][name]}" for name in _NAMED if name in content["versions"]),
            labels={name: palette.bound_labels(bounds) for name, bounds in palette.BOUNDS.items()},
            **in_words(content),
        )
    )


def _page_data(tokens: dict[str, Any]) -> dict[str, Any]:
    """What the page's script reads: one array per quantity, rounded to what it shows."""
    return {
        "text": tokens["text"],
        "added": tokens["added"],
        "long": _rounded(tokens["long_nll"]),
        "short": _rounded(tokens["short_nll"]),
        "weight": [None if value is None else float(f"{value:.4g}") for value in tokens["weight"]],
        "context": tokens["short_context_tokens"],
        "bounds": palette.BOUNDS,
    }


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]
