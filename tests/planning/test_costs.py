"""A plan's GPU-hours and memory against every measurement in benchmarks/results."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal

import pytest

from tokenweight.pipeline.store import Store
from tokenweight.planning.costs import (
    parameters,
    published_config,
    scoring_hours,
    stage_cost,
    training_hours,
    training_memory,
)
from tokenweight.recipes import Inputs
from tokenweight.recipes.schema import Checkpointing, Execution, Scorer
from tokenweight.tasks.experiments import plan_texts

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs/plan.md").read_text()
EVALUATION = tomllib.loads((ROOT / "tokenweight/planning/costs.toml").read_text())["evaluation"]
LLAMA3_8B_ID, LLAMA32_1B = "meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.2-1B"
LLAMA32_3B, PHI2_ID = "meta-llama/Llama-3.2-3B", "microsoft/phi-2"
MODELS = {"llama3-8b": LLAMA3_8B_ID, "llama3.2-1b": LLAMA32_1B, "phi-2": PHI2_ID}
LONG = 32_768
UNFROZEN = {"uniform": False, "unfrozen dense": True, "unfrozen sparse 0.2": True, "frozen, scores ready": False}
SCORING = "scoring alone"
LONG_CONTEXT = ("h200x2-llama3-8b-long-context", "8b-256k-two")


def measured(name: str) -> dict[str, Any]:
    """The one result of that name, of `everything` or whatever its date."""
    results = ROOT / "benchmarks/results"
    (file,) = [*results.glob(f"everything/{name}.json"), *results.glob(f"????-??-??-{name}.json")]
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def scorer(model: str, kind: Literal["frozen", "unfrozen"], short_tokens: int | None = None) -> Scorer:
    short, stride = (2048, 1920) if model == "phi-2" else (8192, 6144)
    if short_tokens is not None:
        short, stride = short_tokens, short_tokens * 3 // 4
    return Scorer(kind=kind, short_tokens=short, stride_tokens=stride)


def step_seconds(model: str, variant: str, tokens: int = LONG, short_tokens: int | None = None) -> float:
    """Seconds of one sequence on one H200."""
    own = scorer(model, "unfrozen", short_tokens) if UNFROZEN[variant] else None
    return 3600 * training_hours(published_config(MODELS[model]), tokens, 1, own)


def scoring_seconds(model: str) -> float:
    return 3600 * scoring_hours(published_config(MODELS[model]), LONG, 1, scorer(model, "frozen"))


def ratios() -> dict[str, dict[str, float]]:
    """Predicted over measured seconds: benchmark -> variant."""
    rows: dict[str, dict[str, float]] = {}
    for label, name in (
        ("8B, two H200, ZeRO-3, complete", "llama3-8b-two"),
        ("8B, one H200, from 4 and 8 layers", "llama3-8b"),
        ("Phi-2, one H200, from 4 and 8 layers", "phi-2"),
    ):
        result = measured(name)
        model, each = result["model"], result.get("accumulation", 1)
        rows[label] = {
            variant: step_seconds(model, variant) * each / result["seconds"][variant] for variant in UNFROZEN
        }
        if SCORING in result["seconds"]:
            rows[label][SCORING] = scoring_seconds(model) * each / result["seconds"][SCORING]
    one_b = measured("llama3-8b")["seconds"]["scoring alone, llama3.2-1b"]
    rows["Llama-3.2 1B, one H200"] = {SCORING: scoring_seconds("llama3.2-1b") / one_b}
    for row in measured("scoring")["rows"]:
        if row["variant"] == "bf16, fused":
            rows[f"{row['model']}, scoring.py, fused"] = {SCORING: scoring_seconds(row["model"]) / row["seconds"]}
    for row in (row for name in LONG_CONTEXT for row in measured(name)["rows"]):
        tokens = row["tokens"]
        predicted = step_seconds("llama3-8b", row["weighting"], tokens, min(8192, tokens // 4))
        label = f"8B, two H200 on one sequence of {tokens // 1024}k"
        rows.setdefault(label, {})[row["weighting"]] = predicted / (2 * row["seconds"])
    return rows


def test_seconds_are_as_near_the_measured_as_the_docs_say() -> None:
    """A row of the table in docs/plan.md for each benchmark, and bounds."""
    for label, row in ratios().items():
        cells = [f"{row[variant]:.2f}" if variant in row else "-" for variant in (*UNFROZEN, SCORING)]
        assert f"| {label} | {' | '.join(cells)} |" in DOCS
        bound = {"8k": 4.4, "16k": 1.7}.get(label.rpartition(" ")[2], 1.40 if "on one sequence" in label else 1.16)
        assert all(1 / bound < value < bound for value in row.values()), label  # docs/plan.md says why


def test_a_plan_of_scale_mini_has_the_gpu_hours_of_its_trainings(tmp_path: Path) -> None:
    """Of its own plan, against benchmarks/small_model.py: a row of docs/plan.md, within 1.3. Its scoring was not timed."""
    inputs = Inputs(corpus=str(ROOT / "reports/results/mini/books.sha256"))
    (planned,), _ = plan_texts(["table-3"], "mini", inputs, Store(tmp_path))
    uniform = planned.graph.trained["table-3/uniform"]
    trained = {
        "pre-training": uniform.inputs["model"].inputs["model"],
        "table-3/uniform": uniform,
        "table-3/unfrozen-sparse": planned.graph.trained["table-3/unfrozen-sparse"],
    }
    cells = []
    for name, artifact in trained.items():
        training, chunks = artifact.stage.training, artifact.inputs["chunks"].stage.chunking
        tokens = training.steps * training.sequences_per_step * chunks.long_tokens
        seconds = tokens / measured("small-model")["rows"][f"{name}, layers compiled"]["tokens/s"]
        ratio = 3600 * (stage_cost(artifact, Execution()).gpu_hours or 0.0) / seconds
        assert 1 / 1.3 < ratio < 1.3, name
        cells.append(f"{ratio:.2f}")
    assert f"pre-training {cells[0]}, uniform {cells[1]}, unfrozen sparse {cells[2]}" in DOCS
    assert stage_cost(planned.graph.trained["table-3/frozen-dense"].inputs["scores"], Execution()).gpu_hours is None


def test_the_seconds_of_a_sample_are_the_measured() -> None:
    result = measured("h200x2-evaluation-8k-llama3.2-1b-shape")["benchmarks"]
    by_benchmark = EVALUATION["timed"]
    assert len(by_benchmark) == 5
    assert {name: [result[name]["seconds"], result[name]["samples"]] for name in by_benchmark} == by_benchmark


def test_the_least_seconds_of_a_sample_are_those_of_a_small_model_alone_and_in_eight_slots() -> None:
    alone, of_eight = (measured(name)["benchmarks"] for name in ("evaluation-mini", "h200-evaluation-mini-8-slots"))
    timed = EVALUATION["timed_small"]
    assert len(timed) == 4
    for name, least in timed.items():
        assert [alone[name]["seconds"], of_eight[name]["seconds"], alone[name]["samples"]] == least


@pytest.mark.parametrize(("slots", "name"), [(1, "evaluation-mini"), (8, "h200-evaluation-mini-8-slots")])
def test_evaluation_of_a_small_model_takes_the_measured_gpu_hours(slots: int, name: str, tmp_path: Path) -> None:
    result = measured(name)
    mini = ROOT / "reports/results/mini-31m"
    inputs = Inputs(corpus=str(mini / "books.sha256"), mmlu=str(mini / "mmlu.sha256"))
    (planned,), _ = plan_texts(["table-3"], "mini-31m", inputs, Store(tmp_path))
    for benchmark in ("ruler", "mmlu"):  # of LongBench's own files a plan counts no lines, of listed texts no documents
        units = planned.graph.evaluations[planned.recipes["uniform", 0].name]
        costs = [
            stage_cost(one, Execution(slots_per_gpu=slots)) for one in units if one.stage.unit.benchmark == benchmark
        ]
        seconds = 3600 * sum(cost.gpu_hours or 0.0 for cost in costs)
        assert seconds == pytest.approx(result["benchmarks"][benchmark]["seconds"] / slots, rel=0.5), benchmark


def test_memory_is_within_five_percent_of_the_measured_peaks() -> None:
    config = published_config(LLAMA3_8B_ID)

    def predicted(tokens: int, checkpointing: Checkpointing, sequence_parallel: int, *, offload: bool = False) -> float:
        execution = Execution(
            launcher="torchrun", processes=2, deepspeed_stage=3, checkpointing=checkpointing,
            sequence_parallel=sequence_parallel, offload_activations=offload,
        )  # fmt: skip
        return (training_memory(config, parameters(config), tokens, execution) or 0.0) / 2**30

    whole = measured("llama3-8b-two")
    peaks = [("ZeRO-3, 32k on each", whole["peak_gib"]["uniform"], predicted(LONG, "keep_projections", 1))]
    for result in map(measured, LONG_CONTEXT):
        offload = result.get("offload_activations", False)
        for row in (row for row in result["rows"] if row["weighting"] == "uniform"):
            tokens, label = row["tokens"], f"{row['tokens'] // 1024}k shared by two{', offloaded' if offload else ''}"
            peaks.append((label, row["peak_gib"], predicted(tokens, "full", 2, offload=offload)))
    for label, peak, model in peaks:
        assert f"| {label} | {peak:.1f} | {model:.1f} |" in DOCS
        assert model == pytest.approx(peak, rel=0.05), label


@pytest.mark.parametrize(
    ("repo_id", "billions"), [(LLAMA3_8B_ID, 8.03), (LLAMA32_1B, 1.236), (LLAMA32_3B, 3.213), (PHI2_ID, 2.78)]
)
def test_parameters_are_those_of_the_models(repo_id: str, billions: float) -> None:
    """As published; of the 1B with a head of its own benchmarks/evaluation.py counted 1,498,482,688."""
    assert parameters(published_config(repo_id)) / 1e9 == pytest.approx(billions, rel=2e-3)
    if repo_id == LLAMA32_1B:
        config = published_config(repo_id)
        counted = measured("h200x2-evaluation-8k-llama3.2-1b-shape")["parameters"]
        head = config.vocab_size * config.hidden_size
        assert parameters(config) + head == pytest.approx(counted, rel=1e-4)
