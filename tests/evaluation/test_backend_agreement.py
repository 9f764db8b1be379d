"""How two backends' rows are compared, and when they do not agree."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tokenweight.evaluation.rows import Row
from tokenweight.evaluation.units import Unit
from tokenweight.evaluation.vllm.agreement import BOUNDS, Agreement, Pair, compare, disagreements

VT = Unit("ruler", "vt", 1024)
ROW = Row(
    doc_id=0, prompt_sha256="a" * 64, n_prompt_tokens=10, untruncated_tokens=None, truncated=False, length_words=None,
    output="seven and more", filtered="seven", reference='["7"]', metric="string_match_all", score=0.5,
)  # fmt: skip


def _rows(count: int, **changes: Any) -> list[Row]:
    return [replace(ROW, doc_id=i, **changes) for i in range(count)]


def _compared(first: list[Row], second: list[Row], unit: Unit = VT) -> Agreement:
    (found,) = compare([Pair(unit, first, second)])
    return found


def test_equal_rows_agree_with_an_interval_of_nothing() -> None:
    found = _compared(_rows(20), _rows(20)[::-1])
    assert (found.n, found.outputs_equal, found.first_difference) == (20, 1.0, None)
    assert (found.difference, found.interval) == (0.0, (0.0, 0.0))
    assert disagreements(found, BOUNDS["fp32"]) == []


def test_prompts_must_be_identical() -> None:
    for change in ({"prompt_sha256": "b" * 64}, {"n_prompt_tokens": 11}):
        found = _compared(_rows(20), [*_rows(19), replace(ROW, doc_id=19, **change)])
        assert disagreements(found, BOUNDS["bf16"]) == ["1 of 20 prompts differ"]
    assert disagreements(_compared(_rows(20), _rows(18)), BOUNDS["bf16"]) == [
        "2 samples were answered by one backend alone"
    ]


def test_where_outputs_part() -> None:
    other = [replace(row, output="seven or less" if i % 2 else "Six") for i, row in enumerate(_rows(4))]
    found = _compared(_rows(20), other + _rows(20)[4:])
    assert found.outputs_equal == 0.8
    assert found.differ_at_start == 0.1
    assert found.first_difference == (0, 3.0)  # of 0, 6, 0, 6
    assert disagreements(found, BOUNDS["bf16"]) == []
    assert [text.partition("%")[0] for text in disagreements(found, BOUNDS["fp32"])] == ["80.0", "10.0"]


def test_scores_must_differ_beyond_chance_and_beyond_the_bound() -> None:
    flipped = [replace(row, score=0.0 if row.doc_id == 3 else 0.5) for row in _rows(50)]
    chance = _compared(_rows(50), flipped)
    assert chance.difference == pytest.approx(-0.01)
    assert chance.interval[0] < chance.difference <= chance.interval[1] == 0
    assert disagreements(chance, BOUNDS["bf16"]) == []
    found = _compared(_rows(50), [replace(row, score=0.25 if row.doc_id % 2 else 0.5) for row in _rows(50)])
    (told,) = disagreements(found, BOUNDS["bf16"])
    assert told.startswith("scores differ by -12.5 points, 95 % interval [-16")
    small = _compared(_rows(50), _rows(50, score=0.49))  # certain, but too small to matter
    assert disagreements(small, BOUNDS["bf16"]) == []


def test_mmlu_compares_log_likelihoods_and_answers() -> None:
    def answered(count: int, shift: float, letter: str = "A") -> list[Row]:
        output = json.dumps([-1.0, -2.0 + shift, -3.0, -4.0])
        return _rows(count, output=output, filtered=letter, metric="acc")

    unit = Unit("mmlu", "anatomy")
    found = _compared(answered(50, 0.0), answered(50, 0.25), unit)
    assert found.log_likelihood_difference == pytest.approx(0.25)
    assert (found.outputs_equal, found.first_difference, found.differ_at_start) == (1.0, None, None)
    assert disagreements(found, BOUNDS["bf16"]) == []
    assert disagreements(found, BOUNDS["fp32"]) == ["a log-likelihood differs by 0.25 nats (at most 0.01)"]
    other = [*answered(44, 0.0), *(replace(row, doc_id=44 + row.doc_id) for row in answered(6, 0.0, "B"))]
    (told,) = disagreements(_compared(answered(50, 0.0), other, unit), BOUNDS["bf16"])
    assert told == "88.0% of the answers are equal (at least 90%)"


def test_benchmarks_are_told_apart_and_units_together() -> None:
    pairs = [
        Pair(Unit("bbh", "snarks"), _rows(2), _rows(2)),
        Pair(VT, _rows(3), _rows(3)),
        Pair(VT, _rows(4), _rows(4)),
    ]
    assert [(one.benchmark, one.n) for one in compare(pairs)] == [("ruler", 7), ("bbh", 2)]
    with pytest.raises(ValueError, match="no sample in common"):
        compare([Pair(VT, _rows(2), [])])
