"""Units: what is evaluated, and that listing it needs no model library."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tokenweight.evaluation.units import BENCHMARKS, Unit
from tokenweight.recipes.schema import Evaluation


@pytest.mark.parametrize(
    ("name", "context_tokens", "count"),
    [("ruler", 512, 26), ("ruler", 300, 13), ("ruler", 100, 0), ("longbench", 512, 16), ("mmlu", 512, 57),
     ("bbh", 512, 27), ("perplexity", 512, 2), ("perplexity", 128, 1)],
)  # fmt: skip
def test_counts(name: str, context_tokens: int, count: int, evaluation: Evaluation) -> None:
    found = BENCHMARKS[name].units(evaluation, context_tokens)
    assert len(found) == len({unit.id for unit in found}) == count


def test_ids(evaluation: Evaluation) -> None:
    assert Unit("ruler", "niah_single_1", 4096).id == "ruler/niah_single_1/4096"
    assert Unit("mmlu", "anatomy").id == "mmlu/anatomy"
    assert BENCHMARKS["perplexity"].units(evaluation, 8192)[0].id == "perplexity/validation/128"


def test_listing_units_loads_no_model_library() -> None:
    code = (
        "import sys; import tokenweight.evaluation.units, tokenweight.evaluation.run;"
        "print([m for m in ('torch', 'transformers', 'lm_eval', 'datasets', 'pyarrow') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_unit_says_how_it_is_asked_and_scored(evaluation: Evaluation) -> None:
    assert BENCHMARKS["longbench"].protocol(Unit("longbench", "trec"), evaluation)["harness"].startswith("lm-eval 0.4")
    for name, benchmark in BENCHMARKS.items():
        for unit in BENCHMARKS[name].units(evaluation, 512):
            version = benchmark.tasks[unit.task].template_version
            assert benchmark.protocol(unit, evaluation)["template_version"] == version
            assert benchmark.scoring(unit, evaluation)["metric"]
