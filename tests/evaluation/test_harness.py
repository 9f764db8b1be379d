"""The loaded model: one BOS, nothing cut unseen, outputs that do not depend on what else is in the batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.benchmark import UnitRun
from tokenweight.evaluation.hf_model import HFModel
from tokenweight.evaluation.units import BENCHMARKS, Unit
from tokenweight.recipes.schema import Evaluation, Execution

CONTEXT_TOKENS = 512
PROMPTS = ["What is 7 + 2?", "The lazy dog jumps over the quick brown fox. " * 3, "True and False is", "A" * 200]


@pytest.fixture(scope="module")
def harness(checkpoint: Path, execution: Execution) -> HFModel:
    return HFModel(checkpoint, CONTEXT_TOKENS, execution, "fp32")


def _instances(prompts: list[str], new_tokens: int = 12) -> list[Any]:
    from lm_eval.api.instance import Instance

    arguments = {"max_gen_toks": new_tokens, "until": [], "do_sample": False}
    return [Instance("generate_until", {}, (prompt, arguments), 0, (None, i, 1)) for i, prompt in enumerate(prompts)]


def _alone(harness: HFModel, prompt: str, new_tokens: int = 12) -> str:
    """Greedy decoding by plain forward passes, no cache, no padding."""
    ids = harness.lm.tok_encode(prompt)
    start = len(ids)
    for _ in range(new_tokens):
        with torch.no_grad():
            ids.append(int(harness.lm.model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == harness.lm.tokenizer.eos_token_id:
            break
    return str(harness.lm.tokenizer.decode(ids[start:], skip_special_tokens=True))


def test_batched_outputs_equal_each_prompt_decoded_alone(harness: HFModel) -> None:
    expected = [_alone(harness, prompt) for prompt in PROMPTS]
    assert len(set(expected)) > 2, "the random model says the same to everything: nothing is tested"
    assert harness.ask(_instances(PROMPTS), 4) == expected
    assert harness.ask(_instances(PROMPTS[::-1]), 4) == expected[::-1]
    assert harness.ask(_instances(PROMPTS[1:2]), 1) == expected[1:2]


def test_the_model_reads_exactly_one_bos(harness: HFModel, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    original = harness.lm._model_generate

    def spy(context: torch.Tensor, attention_mask: torch.Tensor, **rest: Any) -> Any:
        seen.extend(row[keep.bool()].tolist() for row, keep in zip(context, attention_mask, strict=True))
        return original(context=context, attention_mask=attention_mask, **rest)

    monkeypatch.setattr(harness.lm, "_model_generate", spy)
    harness.ask(_instances(PROMPTS, 2), 4)
    assert len(seen) == len(PROMPTS)
    assert all(ids[0] == 0 and ids.count(0) == 1 for ids in seen)


def test_bos_missing_or_doubled_is_an_error(harness: HFModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness.lm, "tok_encode", lambda text: [0, 0, 5])
    with pytest.raises(StageError, match="BOS occurs twice"):
        harness.read("a")
    monkeypatch.setattr(harness.lm, "tok_encode", lambda text: [5, 6])
    with pytest.raises(StageError, match="BOS is missing"):
        harness.read("a")


def test_special_tokens_inside_a_prompt_are_counted(harness: HFModel) -> None:
    tokenizer = harness.lm.tokenizer
    prompt = harness.read(f"a{tokenizer.eos_token}b{tokenizer.bos_token}c")
    assert (prompt.bos_tokens, prompt.special_tokens) == (1, 2)
    assert harness.read("abc").special_tokens == 0


def test_a_prompt_that_would_be_cut_is_refused(harness: HFModel) -> None:
    prompt = "A" * 300
    n = harness.read(prompt).n_tokens
    assert harness.checked(prompt, CONTEXT_TOKENS - n).n_tokens == n
    with pytest.raises(StageError, match="it would be truncated on the left"):
        harness.checked(prompt, CONTEXT_TOKENS - n + 1)


def test_fewshot_examples_give_way_to_the_question(harness: HFModel) -> None:
    def prompt_with(shots: int) -> str:
        return "B" * 150 * shots + "Question"

    full = harness.fitting(prompt_with, 2, new_tokens=10)
    assert (full.text, full.truncated) == (prompt_with(2), False)
    cut = harness.fitting(prompt_with, 5, new_tokens=10)
    assert cut.truncated
    assert cut.text == prompt_with(3)
    assert cut.untruncated_tokens == harness.read(prompt_with(5)).n_tokens
    hopeless = harness.fitting(lambda shots: "B" * 900 + "Question", 1, new_tokens=10)
    assert hopeless.n_tokens == CONTEXT_TOKENS - 10
    assert hopeless.text.endswith("Question")
    assert harness.lm.tok_encode(hopeless.text)[0] == 0


def test_prompts_of_another_tokenizer_are_refused(
    harness: HFModel, evaluation: Evaluation, tmp_path: Path, prompt_record: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "prompts.jsonl").write_text(json.dumps(prompt_record(0, "What is 7?", 999)))
    run = UnitRun(Unit("ruler", "vt", 512), (tmp_path,), tmp_path)
    with pytest.raises(StageError, match="not the one it was prepared for"):
        list(BENCHMARKS["ruler"].steps([run], evaluation, harness, {}))


def test_sampling_settings_of_a_checkpoint_are_ignored(checkpoint: Path, execution: Execution, tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    (copy / "generation_config.json").write_text(
        json.dumps(
            {"do_sample": True, "temperature": 5.0, "repetition_penalty": 9.0, "bos_token_id": 0, "eos_token_id": 1}
        )
    )
    outputs = [
        HFModel(path, CONTEXT_TOKENS, execution, "fp32").ask(_instances(PROMPTS), 4) for path in (checkpoint, copy)
    ]
    assert outputs[0] == outputs[1]


def test_a_bare_tokenizer_gets_its_end_of_text_by_name(checkpoint: Path, execution: Execution, tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    bare = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (copy / "tokenizer_config.json").write_text(json.dumps(bare))
    found = HFModel(copy, CONTEXT_TOKENS, execution, "fp32")
    assert found.lm.tokenizer.eos_token == "<eos>"
    assert len(found.ask(_instances(PROMPTS, 2), 4)) == len(PROMPTS)
    text = (copy / "tokenizer.json").read_text().replace("<eos>", "<what>")
    (copy / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match="names no eos_token"):
        HFModel(copy, CONTEXT_TOKENS, execution, "fp32")


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_the_precision_is_the_evaluations_not_the_devices(
    precision: Any, dtype: torch.dtype, checkpoint: Path, execution: Execution
) -> None:
    assert HFModel(checkpoint, CONTEXT_TOKENS, execution, precision).lm.model.dtype == dtype


def test_slots_of_one_gpu_share_the_memory_for_logits_and_for_reading_prompts(
    checkpoint: Path, execution: Execution
) -> None:
    alone, of_eight = (
        HFModel(checkpoint, CONTEXT_TOKENS, execution.model_copy(update={"slots_per_gpu": slots}), "fp32")
        for slots in (1, 8)
    )
    assert of_eight.logits_tokens == alone.logits_tokens // 8
    assert of_eight.lm.read_tokens == alone.lm.read_tokens // 8
