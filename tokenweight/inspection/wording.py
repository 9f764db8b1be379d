"""Settings of an inspection in words, for the console, the page and the table."""

from __future__ import annotations

from typing import Any


def scorer_line(content: dict[str, Any]) -> str:
    """Who gave the short NLL."""
    scorer = content["scorer"]
    if scorer["kind"] == "unfrozen":
        return "the checkpoint itself (unfrozen)"
    return f"{scorer['name']} (frozen, {scorer['sha256'][:8]})"


def windows_line(content: dict[str, Any]) -> str:
    """The windows of the short pass."""
    settings = content["settings"]
    count = settings["windows"]
    return (
        f"{count} window{'s' if count > 1 else ''} of {settings['short_tokens']:,} tokens, "
        f"one every {settings['stride_tokens']:,}"
    )


def weighting_line(content: dict[str, Any]) -> str:
    """Score and postprocessing with their parameter."""
    weighting = content["settings"]["weighting"]
    if weighting["postprocessing"] == "uniform":
        return "uniform"
    parameters = [f"{name} {weighting[name]:g}" for name in ("lambda", "kappa") if weighting[name] is not None]
    return ", ".join([weighting["score"], weighting["postprocessing"], *parameters])
