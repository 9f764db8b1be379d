"""The protocol of benchmarks: adding one takes one class, nothing else knows their names, settings that units depend on."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tokenweight.errors import StageError
from tokenweight.evaluation.benchmark import Benchmark, Step, Unit, UnitRun
from tokenweight.evaluation.data import Task
from tokenweight.evaluation.rows import Row, read_rows
from tokenweight.evaluation.run import evaluate_checkpoint
from tokenweight.evaluation.units import BENCHMARKS, benchmark_of
from tokenweight.recipes.schema import Evaluation, Execution

ROOM = Path(__file__).parents[2] / "tokenweight" / "evaluation"
SHARED = ("benchmark", "rows", "run", "samples", "units")


class Letters(Benchmark):
    """How many letters the model's name has, as a benchmark of one's own."""

    name = "letters"
    tasks: ClassVar = {"count": Task(metric="count")}

    def steps(
        self, runs: Sequence[UnitRun], evaluation: Evaluation, model: Any, rows: Mapping[Unit, dict[int, Row]]
    ) -> Iterator[Step]:
        row = Row(doc_id=0, prompt_sha256="", n_prompt_tokens=1, metric="count", score=float(len(model)))
        yield Step({unit: [row] for unit in rows}, 1, complete={unit: {"names": 1} for unit in rows})


def llama() -> Any:
    return "llama"


def test_a_benchmark_of_ones_own_is_one_class(
    evaluation: Evaluation, execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BENCHMARKS, "letters", Letters())
    (unit,) = BENCHMARKS["letters"].units(evaluation, 512)
    run = UnitRun(unit, (), tmp_path)
    assert benchmark_of(unit).scoring(unit, evaluation)["metric"] == "count"
    assert list(evaluate_checkpoint(tmp_path, [run], evaluation, 512, execution, loaded=llama)) == [unit]
    assert [row.score for row in read_rows(tmp_path)] == [5.0]
    assert json.loads((tmp_path / "summary.json").read_text())["names"] == 1


def test_a_score_that_is_no_number_is_named(
    evaluation: Evaluation, execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nameless(Letters):
        def steps(self, *given: Any) -> Iterator[Step]:
            (step,) = super().steps(*given)
            yield Step({unit: [replace(row, score=float("nan"))] for unit, (row,) in step.rows.items()}, 1)

    monkeypatch.setitem(BENCHMARKS, "letters", Nameless())
    run = UnitRun(Unit("letters", "count"), (), tmp_path)
    with pytest.raises(StageError, match="letters/count: sample 0 scores nan; the checkpoint may be damaged"):
        list(evaluate_checkpoint(tmp_path, [run], evaluation, 512, execution, loaded=llama))


@pytest.mark.parametrize("module", SHARED)
def test_what_benchmarks_share_knows_none_of_them_by_name(module: str) -> None:
    tree = ast.parse((ROOM / f"{module}.py").read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert texts.isdisjoint(BENCHMARKS)


def changed(evaluation: Evaluation, benchmark: str, **settings: Any) -> Evaluation:
    return evaluation.model_copy(update={benchmark: getattr(evaluation, benchmark).model_copy(update=settings)})


@pytest.mark.parametrize(
    ("unit", "benchmark", "settings", "depends"),
    [
        (Unit("ruler", "vt", 512), "ruler", {"lengths_tokens": (512, 9999)}, False),
        (Unit("ruler", "vt", 512), "ruler", {"squad": "elsewhere.json"}, False),
        (Unit("ruler", "qa_1", 512), "ruler", {"squad": "elsewhere.json"}, True),
        (Unit("ruler", "vt", 512), "ruler", {"samples": 77}, True),
        (Unit("longbench", "trec"), "longbench", {"split_tokens": 77, "length_unit": "words"}, False),
        (Unit("longbench", "trec"), "longbench", {"first_line": "thudm"}, True),
        (Unit("mmlu", "anatomy"), "bbh", {"samples": 77}, False),
        (Unit("mmlu", "anatomy"), "mmlu", {"samples": 77}, True),
        (Unit("perplexity", "validation", 128), "perplexity", {"lengths_tokens": (128, 9999)}, False),
        (Unit("perplexity", "validation", 128), "perplexity", {"documents": 77}, True),
        (Unit("pmi", "validation"), "perplexity", {"lengths_tokens": (9999,)}, False),
        (Unit("pmi", "validation"), "pmi", {"short_tokens": 100}, True),
        (Unit("phrase", "long_nll"), "pmi", {"short_tokens": 100}, True),
        (Unit("planted", "auc"), "planted", {"sequences": 77}, True),
    ],
)
def test_a_unit_depends_on_its_own_settings_alone(
    unit: Unit, benchmark: str, settings: dict[str, Any], depends: bool, evaluation: Evaluation
) -> None:
    def own(given: Evaluation) -> dict[str, Any]:
        return benchmark_of(unit).settings_of(unit, given)

    assert (own(evaluation) != own(changed(evaluation, benchmark, **settings))) is depends
