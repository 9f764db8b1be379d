"""Evaluating many units: resumable after a kill, batched across units, and the same in processes of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.benchmark import UnitRun
from tokenweight.evaluation.hf_model import EvaluatedModel, HFModel
from tokenweight.evaluation.rows import read_rows
from tokenweight.evaluation.run import evaluate_checkpoint, evaluation_execution
from tokenweight.evaluation.units import Unit
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.schema import Evaluation, Execution

PROMPTS = {
    Unit("ruler", "niah_single_1", 256): ["Find 7 in it: the lazy dog", "Find 8 in it: quick brown foxes"],
    Unit("ruler", "qa_1", 256): ["Question: who jumps?", "Question: what is lazy, and what is quick and brown?"],
    Unit("longbench", "trec"): ["Type of: Who is it?", "Type: What is it? " * 5],
}


@pytest.fixture
def jobs(
    checkpoint: Path, context_tokens: int, tmp_path: Path, prompt_record: Callable[..., dict[str, Any]]
) -> list[UnitRun]:
    """Prepared RULER and LongBench units, and two that lm-eval prepares itself."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    made = [
        UnitRun(Unit("mmlu", "anatomy"), (), tmp_path / "out/mmlu"),
        UnitRun(Unit("bbh", "snarks"), (), tmp_path / "out/bbh"),
    ]
    for unit, prompts in PROMPTS.items():
        prepared = tmp_path / "prepared" / unit.id
        prepared.mkdir(parents=True)
        records = [
            prompt_record(
                i, prompt, len(tokenizer(prompt).input_ids), all_classes=["Person", "Thing"], references=["Person"]
            )
            for i, prompt in enumerate(prompts)
        ]
        (prepared / "prompts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        made.append(UnitRun(unit, (prepared,), tmp_path / "out" / unit.id))
    return made


def _all_rows(jobs: list[UnitRun]) -> dict[str, Any]:
    return {job.unit.id: read_rows(job.out_dir) for job in jobs}


def test_every_unit_is_yielded_with_rows_and_summary(
    checkpoint: Path, jobs: list[UnitRun], evaluation: Evaluation, execution: Execution, context_tokens: int
) -> None:
    seen: list[tuple[int, int, str]] = []
    done = list(
        evaluate_checkpoint(checkpoint, jobs, evaluation, context_tokens, execution, lambda *told: seen.append(told))
    )
    assert sorted(unit.id for unit in done) == sorted(job.unit.id for job in jobs)
    for job in jobs:
        told = json.loads((job.out_dir / "summary.json").read_text())
        assert told["n"] == told["n_expected"] == len(read_rows(job.out_dir))
        assert {p.name for p in job.out_dir.iterdir()} == {"rows.parquet", "summary.json"}
    assert (4, 4, "ruler samples") in seen
    rows = read_rows(jobs[2].out_dir)
    assert [row.metric for row in rows] == ["string_match_all"] * 2
    assert all(row.n_prompt_tokens > 5 and row.output for row in rows)


def test_a_units_rows_do_not_depend_on_the_others(
    checkpoint: Path,
    jobs: list[UnitRun],
    evaluation: Evaluation,
    execution: Execution,
    context_tokens: int,
    tmp_path: Path,
) -> None:
    list(evaluate_checkpoint(checkpoint, jobs, evaluation, context_tokens, execution))
    alone = [replace(job, out_dir=tmp_path / "alone" / job.unit.id) for job in jobs]
    for job in alone[2:]:
        list(evaluate_checkpoint(checkpoint, [job], evaluation, context_tokens, execution))
    assert _all_rows(jobs[2:]) == _all_rows(alone[2:])


def test_killed_run_repeats_at_most_one_batch(
    checkpoint: Path,
    jobs: list[UnitRun],
    evaluation: Evaluation,
    context_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one_by_one = Execution(device="cpu", eval_batch_sequences=1)
    monkeypatch.setattr(HFModel, "batch_size", lambda self, *sizes: 1)
    asked: list[str] = []
    original = EvaluatedModel.generate_until

    def dies_at_the_fourth(self: EvaluatedModel, instances: list[Any], **_: Any) -> list[str]:
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.extend(instance.args[0] for instance in instances)
        return original(self, instances, disable_tqdm=True)

    ruler = jobs[2:4]
    with monkeypatch.context() as killed:
        killed.setattr(EvaluatedModel, "generate_until", dies_at_the_fourth)
        with pytest.raises(KeyboardInterrupt):
            list(evaluate_checkpoint(checkpoint, ruler, evaluation, context_tokens, one_by_one))
    again: list[str] = []

    def counted(self: EvaluatedModel, instances: list[Any], **_: Any) -> list[str]:
        again.extend(instance.args[0] for instance in instances)
        return original(self, instances, disable_tqdm=True)

    monkeypatch.setattr(EvaluatedModel, "generate_until", counted)
    assert len(list(evaluate_checkpoint(checkpoint, ruler, evaluation, context_tokens, one_by_one))) == 2
    assert len(again) == 1
    assert sorted(again + asked) == sorted(PROMPTS[ruler[0].unit] + PROMPTS[ruler[1].unit])


def test_complete_units_load_no_model(
    checkpoint: Path,
    jobs: list[UnitRun],
    evaluation: Evaluation,
    execution: Execution,
    context_tokens: int,
    tmp_path: Path,
) -> None:
    list(evaluate_checkpoint(checkpoint, jobs, evaluation, context_tokens, execution))
    nowhere = tmp_path / "no-checkpoint"
    assert list(evaluate_checkpoint(nowhere, jobs, evaluation, context_tokens, execution)) == [job.unit for job in jobs]


def test_missing_data_is_named_before_the_model_loads(
    jobs: list[UnitRun], evaluation: Evaluation, execution: Execution, context_tokens: int, tmp_path: Path
) -> None:
    broken = evaluation.model_copy(update={"mmlu": evaluation.mmlu.model_copy(update={"data": str(tmp_path / "none")})})
    with pytest.raises(UserError, match=r"evaluation\.mmlu\.data"):
        list(evaluate_checkpoint(tmp_path / "no-checkpoint", jobs, broken, context_tokens, execution))


@pytest.mark.parametrize(
    ("scale", "device", "processes", "expected"),
    [
        ("paper", None, None, ("cuda", "all")),
        ("paper", None, 2, ("cuda", 2)),
        ("smoke", None, None, ("auto", "all")),
        ("smoke", "cpu", None, ("cpu", None)),
        ("paper", "cpu", 2, ("cpu", 2)),
    ],
)
def test_what_a_machine_with_four_gpus_does(
    scale: Any, device: Any, processes: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    chosen = evaluation_execution(ModelOptions(scale=scale, device=device, processes=processes))
    assert (chosen.device, chosen.gpus if device != "cpu" else chosen.slots) == expected
    with pytest.raises(UserError, match="--processes 5 with --tensor-parallel 1: 5 GPUs are needed, torch sees 4"):
        evaluation_execution(ModelOptions(processes=5))


def test_a_batch_that_fills_the_gpu_is_asked_in_parts(
    checkpoint: Path,
    jobs: list[UnitRun],
    evaluation: Evaluation,
    execution: Execution,
    context_tokens: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    list(evaluate_checkpoint(checkpoint, jobs, evaluation, context_tokens, execution))
    sizes: list[int] = []
    original = EvaluatedModel._model_generate

    def full_from_two_on(self: EvaluatedModel, context: torch.Tensor, *given: Any, **arguments: Any) -> Any:
        sizes.append(len(context))
        if len(context) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, context, *given, **arguments)

    monkeypatch.setattr(EvaluatedModel, "_model_generate", full_from_two_on)
    parted = [replace(job, out_dir=tmp_path / "parted" / job.unit.id) for job in jobs]
    list(evaluate_checkpoint(checkpoint, parted, evaluation, context_tokens, execution))
    assert max(sizes) > 1
    assert _all_rows(jobs) == _all_rows(parted)
    monkeypatch.setattr(EvaluatedModel, "_model_generate", _full)
    with pytest.raises(StageError, match=r"a prompt of \d+ tokens does not fit the GPU's memory"):
        list(
            evaluate_checkpoint(
                checkpoint, [replace(jobs[2], out_dir=tmp_path / "never")], evaluation, context_tokens, execution
            )
        )


def _full(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory")
