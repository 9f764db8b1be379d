"""Backend vllm gives a model the token ids that hf gives it, and makes the same rows of its answers.

A stand-in with vllm's interface answers here through transformers; the last test runs the real one where it is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokenweight.assets import smoke_base_dir
from tokenweight.errors import StageError, UserError
from tokenweight.evaluation import vllm as vllm_check
from tokenweight.evaluation.benchmark import UnitRun
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.rows import Row, read_rows
from tokenweight.evaluation.run import evaluate_checkpoint, evaluation_execution, load
from tokenweight.evaluation.units import Evaluate, Unit
from tokenweight.progress import no_progress
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.schema import Evaluation, Execution

CONTEXT_TOKENS = 512
STAND_IN = Path(__file__).parent / "stand_in"
PROMPTS = ["What is 7 + 2?", "The lazy dog jumps over the quick brown fox. " * 3, "True and False is", "A" * 200]
RULER = [Unit("ruler", "niah_single_1", 256), Unit("ruler", "qa_1", 256)]
REAL = importlib.util.find_spec("vllm") is not None


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`import vllm` finds the stand-in, here and in processes started from here."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]

    forget()
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.syspath_prepend(str(STAND_IN))
    os.environ["PYTHONPATH"] = str(STAND_IN)
    yield
    forget()


@pytest.fixture
def by_vllm(evaluation: Evaluation) -> Evaluation:
    return evaluation.model_copy(update={"backend": "vllm"})


@pytest.fixture
def both(stand_in: None, checkpoint: Path, execution: Execution) -> tuple[LoadedModel, LoadedModel]:
    return load("hf", checkpoint, CONTEXT_TOKENS, execution), load("vllm", checkpoint, CONTEXT_TOKENS, execution)


def _jobs(out_dir: Path, checkpoint: Path, prompt_record: Callable[..., dict[str, Any]]) -> list[UnitRun]:
    """A task of each benchmark that asks a model."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    made = [UnitRun(Unit("mmlu", "anatomy"), (), out_dir / "mmlu"), UnitRun(Unit("bbh", "snarks"), (), out_dir / "bbh")]
    for unit in [*RULER, Unit("longbench", "trec")]:
        prepared = out_dir / "prepared" / unit.id
        prepared.mkdir(parents=True)
        lines = [
            json.dumps(prompt_record(i, p, len(tokenizer(p).input_ids), references=["7"], all_classes=["7", "8"]))
            for i, p in enumerate(f"{unit.task}: {text}" for text in PROMPTS[:3])
        ]
        (prepared / "prompts.jsonl").write_text("\n".join(lines))
        made.append(UnitRun(unit, (prepared,), out_dir / unit.id))
    return made


def _elsewhere(jobs: list[UnitRun], out_dir: Path) -> list[UnitRun]:
    moved = [replace(job, out_dir=out_dir / job.unit.id) for job in jobs]
    for job in moved:
        job.out_dir.mkdir(parents=True)
    return moved


def _same(ours: list[Row], theirs: list[Row]) -> None:
    """Rows are equal, log-likelihoods up to rounding."""
    for a, b in zip(ours, theirs, strict=True):
        if a.metric == "acc":
            assert json.loads(a.output) == pytest.approx(json.loads(b.output), abs=1e-4)
            a, b = replace(a, output=""), replace(b, output="")
        assert a == b


def _generations(stops: list[str]) -> list[Any]:
    from lm_eval.api.instance import Instance

    arguments = {"max_gen_toks": 12, "until": stops, "do_sample": False}
    return [Instance("generate_until", {}, (text, arguments), 0, (None, i, 1)) for i, text in enumerate(PROMPTS)]


def _choices(texts: list[str]) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [
        Instance("loglikelihood", {}, (text, choice), i, (None, i, 1))
        for text in PROMPTS
        for i, choice in enumerate(texts)
    ]


def test_outputs_equal_those_of_hf(both: tuple[LoadedModel, LoadedModel]) -> None:
    hf, vllm = both
    whole = hf.ask(_generations([]), len(PROMPTS))
    assert len(set(whole)) > 2, "the random model says the same to everything: nothing is tested"
    assert vllm.ask(_generations([]), len(PROMPTS)) == whole
    stop = max(whole, key=len)[2:4]
    cut = hf.ask(_generations([stop]), len(PROMPTS))
    assert cut != whole
    assert vllm.ask(_generations([stop]), len(PROMPTS)) == cut


def test_a_conversation_is_written_as_by_hf(both: tuple[LoadedModel, LoadedModel]) -> None:
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "It is"}]
    for model in both:
        model.lm.tokenizer.chat_template = "{% for turn in messages %}{{turn.role}}: {{turn.content}}\n{% endfor %}"
    for is_open in (True, False):
        assert len({model.lm.apply_chat_template(turns, is_open) for model in both}) == 1


def test_slots_share_a_gpu_s_memory(stand_in: None, checkpoint: Path, execution: Execution) -> None:
    of_eight = load("vllm", checkpoint, CONTEXT_TOKENS, execution.model_copy(update={"slots_per_gpu": 8}))
    assert 8 * of_eight.lm._engine.gpu_memory_utilization == pytest.approx(0.9)


def test_log_likelihoods_equal_those_of_hf(both: tuple[LoadedModel, LoadedModel]) -> None:
    """Choices of one token, which share one reading of their context, and longer ones."""
    hf, _ = both
    best = [text[:1] for text in hf.ask(_generations([]), len(PROMPTS))]
    for choices in (["A", "B", *best], ["A", " True. A", "fox jumps"]):
        expected, found = (model.ask(_choices(choices), len(PROMPTS)) for model in both)
        assert [value for value, _ in found] == pytest.approx([value for value, _ in expected], abs=1e-4)
        assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]
    assert any(greedy for _, greedy in hf.ask(_choices(best), len(PROMPTS)))


def test_the_model_reads_exactly_the_ids_that_were_counted(both: tuple[LoadedModel, LoadedModel]) -> None:
    hf, vllm = both
    vllm.ask(_generations([]), len(PROMPTS))
    seen = vllm.lm._engine.seen
    assert seen == [hf.lm.tok_encode(text) for text in PROMPTS]
    assert all(ids[0] == 0 and ids.count(0) == 1 for ids in seen)


def test_a_prompt_that_was_read_otherwise_is_an_error(both: tuple[LoadedModel, LoadedModel]) -> None:
    os.environ["STAND_IN_DROPS_BOS"] = "1"
    with pytest.raises(StageError, match="read other tokens than it was sent"):
        both[1].ask(_generations([]), len(PROMPTS))


def test_ids_that_end_a_generation_are_those_of_hf(checkpoint: Path, tmp_path: Path, execution: Execution) -> None:
    import shutil

    from transformers import AutoTokenizer

    from tokenweight.evaluation.vllm.model import stop_token_ids

    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    tokenizer = AutoTokenizer.from_pretrained(copy)
    for ids in ([1, 7], 5, None):
        (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
        own = load("hf", copy, CONTEXT_TOKENS, execution).lm.model.generation_config.eos_token_id
        assert stop_token_ids(copy, tokenizer) == (own if isinstance(own, list) else [own])
    (copy / "generation_config.json").unlink()
    assert stop_token_ids(copy, tokenizer) == [1]


def test_rows_equal_those_of_hf_and_a_cut_run_repeats_one_batch(
    both: tuple[LoadedModel, LoadedModel],
    checkpoint: Path,
    by_vllm: Evaluation,
    execution: Execution,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prompt_record: Callable[..., dict[str, Any]],
) -> None:
    hf, vllm = both
    jobs = _elsewhere(_jobs(tmp_path / "made", checkpoint, prompt_record), tmp_path / "hf")
    given = by_vllm, CONTEXT_TOKENS, execution, no_progress
    assert len(list(evaluate_checkpoint(checkpoint, jobs, *given, lambda: hf))) == len(jobs)
    ours = _elsewhere(jobs, tmp_path / "vllm")
    monkeypatch.setattr(vllm, "batch_size", lambda *_: 2)
    original, batches = vllm.lm.generate_until, []

    def dies_at_the_third(instances: list[Any], **_: Any) -> Any:
        if len(batches) == 2:
            raise KeyboardInterrupt
        batches.append(len(instances))
        return original(instances)

    with monkeypatch.context() as killed:
        killed.setattr(vllm.lm, "generate_until", dies_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            list(evaluate_checkpoint(checkpoint, ours, *given, lambda: vllm))
    monkeypatch.setattr(
        vllm.lm, "generate_until", lambda instances, **_: batches.append(len(instances)) or original(instances)
    )
    list(evaluate_checkpoint(checkpoint, ours, *given, lambda: vllm))
    assert sum(batches) == 2 * 3 + 3 + 1  # each sample of RULER, LongBench and BBH was asked once
    for a, b in zip(jobs, ours, strict=True):
        _same(read_rows(a.out_dir), read_rows(b.out_dir))


def test_identities_of_hf_stay_and_those_of_vllm_are_others(evaluation: Evaluation, by_vllm: Evaluation) -> None:
    for unit in [*RULER, Unit("longbench", "trec"), Unit("mmlu", "anatomy"), Unit("bbh", "snarks")]:
        hf, vllm = (Evaluate.of(unit, given, 512) for given in (evaluation, by_vllm))
        assert vllm.protocol == hf.protocol
        assert (hf.evaluation.backend, vllm.evaluation.backend) == ("hf", "vllm")
    for unit in (Unit("perplexity", "validation", 128), Unit("planted", "auc")):
        with pytest.raises(UserError, match=f"backend vllm: {unit.benchmark} reads every token's NLL"):
            Evaluate.of(unit, by_vllm, 512)


def test_what_is_wrong_with_vllm_is_one_line(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm_check.check()
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
    vllm = importlib.import_module("vllm")
    monkeypatch.setattr(vllm, "__version__", "0.11.2")
    with pytest.raises(UserError, match=r"vllm 0\.11\.2 is too old, 0\.32 or later is needed; run the same command"):
        vllm_check.check()
    monkeypatch.delattr(vllm, "__version__")
    with pytest.raises(UserError, match="vllm cannot be imported here"):
        vllm_check.check()
    monkeypatch.setattr(vllm_check, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"vllm is not installed in this environment.*docs/vllm\.md"):
        vllm_check.check()


def test_what_vllm_cannot_run_is_one_line(
    stand_in: None, checkpoint: Path, execution: Execution, tmp_path: Path
) -> None:
    import shutil

    with pytest.raises(UserError, match="this vllm was built for cpu"):
        load("vllm", checkpoint, CONTEXT_TOKENS, execution.model_copy(update={"device": "cuda"}))
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    from tokenweight.context.checkpoint_files import RANDOM_SEED

    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {RANDOM_SEED: 1}))
    with pytest.raises(UserError, match="has a seed in place of weights"):
        load("vllm", copy, CONTEXT_TOKENS, execution)


def test_gpus_of_processes_that_share_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 5)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert evaluation_execution(ModelOptions(processes=2, tensor_parallel=2)).tensor_parallel == 2
    with pytest.raises(UserError, match="--processes 3 with --tensor-parallel 2: 6 GPUs are needed, torch sees 5"):
        evaluation_execution(ModelOptions(processes=3, tensor_parallel=2))


@pytest.mark.skipif(not REAL, reason="vllm is not installed here: run this in its environment (docs/evaluate.md)")
def test_the_real_vllm_makes_the_rows_of_hf(
    evaluation: Evaluation,
    by_vllm: Evaluation,
    execution: Execution,
    tmp_path: Path,
    prompt_record: Callable[..., dict[str, Any]],
) -> None:
    model = smoke_base_dir()  # heads as wide as vllm's kernels want them
    jobs = _jobs(tmp_path / "hf", model, prompt_record)
    ours = _elsewhere(jobs, tmp_path / "vllm")
    assert len(list(evaluate_checkpoint(model, jobs, evaluation, 1024, execution))) == len(jobs)
    assert len(list(evaluate_checkpoint(model, ours, by_vllm, 1024, execution))) == len(jobs)
    for a, b in zip(jobs, ours, strict=True):
        _same(read_rows(a.out_dir), read_rows(b.out_dir))
