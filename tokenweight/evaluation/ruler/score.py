"""RULER's two metrics, recall of the expected strings (Hsieh et al., 2024; Section 4, Evaluation)."""

from __future__ import annotations

import re

from tokenweight.evaluation.ruler.tasks import ruler_task

_CONTROL = re.compile(r"[\x00-\x1f]")


def filter_output(output: str) -> str:
    """The prediction as RULER matches it: control characters become line breaks, ends are stripped."""
    return _CONTROL.sub("\n", output.strip()).strip()


def string_match_all(prediction: str, references: list[str]) -> float:
    """Share of the references that are in the prediction, case ignored."""
    text = prediction.lower()
    return sum(reference.lower() in text for reference in references) / len(references)


def string_match_part(prediction: str, references: list[str]) -> float:
    """1 if any reference is in the prediction, case ignored, else 0."""
    text = prediction.lower()
    return float(any(reference.lower() in text for reference in references))


def score_ruler(task: str, output: str, references: list[str]) -> tuple[str, float]:
    """Filtered prediction and its score in 0..1: string_match_part for question answering, else string_match_all."""
    filtered = filter_output(output)
    part = ruler_task(task).metric == "string_match_part"
    return filtered, (string_match_part if part else string_match_all)(filtered, references)
