"""Levels and colours of weights and NLLs, the same in the page and in the LaTeX table.

Above 1 is a bluish green and below 1 a pale vermilion: two hues that readers with any colour vision deficiency tell
apart. In grey, darker is farther from 1, and what is above 1 is underlined too, thicker with the weight.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

WEIGHT_BOUNDS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # level = how many of these a weight (or 1 / weight) exceeds
BOUNDS = {
    "weight": WEIGHT_BOUNDS,
    "difference": (0.05, 0.1, 0.25, 0.5, 1.0, 2.0),  # nats
    "nll": (0.1, 0.5, 1.0, 2.0, 4.0, 8.0),  # nats
}

# Levels 1 to 6, light page (and LaTeX), then dark page.
ABOVE = ("dff4ea", "bfe9d6", "99dcbf", "6dcca5", "42ba8b", "14a674")
BELOW = ("fdf4ef", "fcebe3", "fae1d6", "f8d6c8", "f6cab9", "f3bca8")
AMOUNT = ("eef0fb", "dadff6", "c3cbf0", "a9b5e9", "8e9ee2", "7388da")
ABOVE_DARK = ("16302a", "12402f", "0f5038", "0c6041", "0a704b", "067f54")
BELOW_DARK = ("261f1e", "2f2321", "392824", "432c26", "4e3129", "59352b")
AMOUNT_DARK = ("1f2333", "262c47", "2d365c", "344173", "3b4c8a", "4358a2")


def weight_level(weight: float) -> int:
    """-6 to -1 below weight 1, 0 at 1, 1 to 6 above, in equal ratios on both sides."""
    if weight >= 1:
        return bisect_left(WEIGHT_BOUNDS, weight)
    return -(bisect_left(WEIGHT_BOUNDS, 1 / weight) if weight > 0 else len(WEIGHT_BOUNDS))


def bound_labels(bounds: tuple[float, ...]) -> list[str]:
    """What each level of 1 and more holds, for a legend: "1 to 1.5", ..., "over 6"."""
    return [*(f"{low:g} to {high:g}" for low, high in pairwise(bounds)), f"over {bounds[-1]:g}"]
