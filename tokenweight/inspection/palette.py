"""Levels and colours of weights and NLLs, the same in the page and in the LaTeX table: `palette.json`.

Above 1 is a bluish green and below 1 a pale vermilion: two hues that readers with any colour vision deficiency tell
apart. In grey, darker is farther from 1, and what is above 1 is underlined too, thicker with the weight. A level is how
many of the bounds (NLLs: of nats) a value exceeds; of a weight below 1, 1 / weight.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from pathlib import Path
from typing import Any

PALETTE: dict[str, Any] = json.loads((Path(__file__).parent / "palette.json").read_text(encoding="utf-8"))
WEIGHT_BOUNDS: list[float] = PALETTE["bounds"]["weight"]


def weight_level(weight: float) -> int:
    """-6 to -1 below weight 1, 0 at 1, 1 to 6 above, in equal ratios on both sides."""
    if weight >= 1:
        return bisect_left(WEIGHT_BOUNDS, weight)
    return -(bisect_left(WEIGHT_BOUNDS, 1 / weight) if weight > 0 else len(WEIGHT_BOUNDS))
