"""An inspection as one page that needs nothing else: no network, no other file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenweight.inspection import palette
from tokenweight.inspection.wording import scorer_line, weighting_line, windows_line
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
            scorer=scorer_line(content),
            windows=windows_line(content),
            weighting=weighting_line(content),
            labels={
                "weight": palette.bound_labels(palette.WEIGHT_BOUNDS),
                "difference": palette.bound_labels(palette.DIFFERENCE_BOUNDS),
                "nll": palette.bound_labels(palette.NLL_BOUNDS),
            },
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
        "bounds": {
            "weight": palette.WEIGHT_BOUNDS,
            "difference": palette.DIFFERENCE_BOUNDS,
            "nll": palette.NLL_BOUNDS,
        },
    }


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in values]
