"""Guards: rows that trip each one, and rows that narrowly do not; what a model's run records of its prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokenweight.evaluation.benchmark import UnitRun
from tokenweight.evaluation.hf_model import EvaluatedModel
from tokenweight.evaluation.rows import Row, read_rows
from tokenweight.evaluation.run import evaluate_checkpoint
from tokenweight.evaluation.samples import echoes
from tokenweight.evaluation.units import Unit, benchmark_of
from tokenweight.recipes.schema import Evaluation, Execution

ROW = Row(
    doc_id=0, prompt_sha256="a" * 64, n_prompt_tokens=10, untruncated_tokens=None, truncated=False, length_words=None,
    output="seven", filtered="seven", reference='["7"]', metric="exact_match", score=0.5, bos_tokens=1,
    left_truncated=False, echoed=False,
)  # fmt: skip


def unit(text: str) -> Unit:
    benchmark, task, *length = text.split("/")
    return Unit(benchmark, task, int(length[0]) if length else None)


def rows(*changes: dict[str, Any]) -> list[Row]:
    return [replace(ROW, doc_id=i, **change) for i, change in enumerate(changes)]


def summary(rows: list[Row], unit: Unit, seconds: float = 0.0) -> dict[str, Any]:
    return benchmark_of(unit).summary(unit, rows, seconds)


def flags(rows: list[Row], unit: Unit) -> list[str]:
    return list(summary(rows, unit)["flags"])


def scored(*scores: float) -> list[Row]:
    return rows(*({"score": score} for score in scores))


def mixed(count: int, out_of: int, **change: Any) -> list[Row]:
    """`count` changed rows of `out_of`, right and wrong in turn."""
    return rows(*({"score": float(i % 2), **(change if i < count else {})} for i in range(out_of)))


def answering(*references: str) -> list[Row]:
    return rows(*({"score": float(i % 2), "reference": json.dumps([r])} for i, r in enumerate(references)))


TRIPPED = [  # flag, unit, rows that trip it, rows that narrowly do not
    ("prompt_echoed", unit("ruler/vt/4096"), mixed(2, 10, echoed=True), mixed(1, 10, echoed=True)),
    ("missing_bos", unit("mmlu/anatomy"), mixed(1, 10, bos_tokens=0), mixed(10, 10, bos_tokens=None)),
    ("double_bos", unit("mmlu/anatomy"), mixed(1, 10, bos_tokens=2), mixed(10, 10, bos_tokens=1)),
    ("special_tokens", unit("bbh/snarks"), mixed(1, 10, special_tokens=1), mixed(10, 10, special_tokens=0)),
    ("all_zero", unit("bbh/snarks"), scored(*[0.0] * 8), scored(*[0.0] * 7, 1.0)),
    ("all_equal", unit("bbh/snarks"), scored(*[0.5] * 8), scored(*[0.5] * 7, 0.4)),
    ("all_empty", unit("bbh/snarks"), mixed(8, 8, output=" \n"), mixed(7, 8, output=" \n")),
    ("implausibly_perfect", unit("longbench/trec"), scored(*[1.0] * 39, 0.0), scored(*[1.0] * 38, 0.0, 0.0)),
    ("implausibly_perfect", unit("ruler/qa_1/4096"), scored(*[1.0] * 8), scored(*[1.0] * 7, 0.0)),
    ("left_truncated", unit("bbh/snarks"), mixed(1, 10, left_truncated=True), mixed(10, 10, truncated=False)),
    ("mostly_truncated", unit("longbench/trec"), mixed(6, 10, truncated=True), mixed(5, 10, truncated=True)),
    ("one_answer_to_everything", unit("mmlu/virology"), answering(*"ABABABAB"), answering(*"AAAAAAAA")),
]


@pytest.mark.parametrize(("flag", "which", "tripping", "narrowly_not"), TRIPPED)
def test_each_flag_is_raised_and_is_not_raised_for_less(
    flag: str, which: Unit, tripping: list[Row], narrowly_not: list[Row]
) -> None:
    assert flags(tripping, which) == [flag]
    assert flag not in flags(narrowly_not, which)


def test_what_a_few_samples_can_and_cannot_tell() -> None:
    assert flags(scored(*[0.0] * 7), unit("bbh/snarks")) == []
    assert flags(mixed(2, 2, output=""), unit("bbh/snarks")) == ["all_empty"]
    assert flags([], unit("bbh/snarks")) == ["no_samples"]


def test_what_is_really_solved_or_has_no_answers_is_not_suspected() -> None:
    assert flags(scored(*[1.0] * 8), unit("ruler/vt/4096")) == []
    assert flags(rows(*[{"score": 3.5, "output": "", "metric": "nll"}] * 8), unit("perplexity/validation/4096")) == []
    assert flags(mixed(8, 8, output="[-1.0, -2.0]"), unit("mmlu/anatomy")) == []


PROMPT = "Some special magic numbers are hidden within the following text. " + "The grass is green. " * 30 + "It is"


@pytest.mark.parametrize(
    ("output", "repeats"),
    [
        (PROMPT + " 7654321.", True),
        ("Sure. \n" + PROMPT.replace(". ", ".\n") + " 7654321.", True),  # the whole prompt, anywhere
        (PROMPT[:40] + " and so on", True),
        (PROMPT[:39] + "!", False),
        (PROMPT[-200:] + " 7654321.", True),
        (PROMPT[-350:] + " 7654321.", True),
        (PROMPT[-199:] + " 7654321.", False),
        (" 7654321. " + PROMPT[-200:], False),  # a model may ask itself the question again
        ("The special magic number is 7654321.", False),
        ("", False),
    ],
)
def test_what_counts_as_an_echo(output: str, repeats: bool) -> None:
    assert echoes(output, PROMPT) is repeats


def test_short_prompts_are_not_judged() -> None:
    assert not echoes("2 + 2 = 4", "2 + 2 =")


def test_a_summary_counts_and_says_which_bos() -> None:
    told = summary(scored(0.0, 1.0), unit("ruler/vt/4096"), seconds=1.5)
    assert (told["n"], told["n_expected"], told["mean_score"], told["seconds"]) == (2, 2, 0.5, 1.5)
    assert (told["flags"], told["bos"], told["share_echoed"]) == ([], 1, 0.0)

    def bos(*counts: int | None) -> Any:
        return summary(rows(*({"bos_tokens": n} for n in counts)), unit("bbh/snarks"))["bos"]

    assert (bos(None, None), bos(0, 0), bos(1, 0)) == ("no BOS", 0, [0, 1])


# --- What a run records ------------------------------------------------------------------------


@pytest.fixture
def ruler_job(prompt_record: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[[Path, str], UnitRun]:
    """A RULER unit of two prompts, prepared for a checkpoint's tokenizer."""

    def made(checkpoint: Path, prompt: str) -> UnitRun:
        from transformers import AutoTokenizer

        prepared = tmp_path / "prepared"
        prepared.mkdir(exist_ok=True)
        n_tokens = len(AutoTokenizer.from_pretrained(checkpoint)(prompt).input_ids)
        lines = [json.dumps(prompt_record(i, prompt, n_tokens)) + "\n" for i in range(2)]
        (prepared / "prompts.jsonl").write_text("".join(lines))
        return UnitRun(Unit("ruler", "vt", 512), (prepared,), tmp_path / "out")

    return made


def without_bos(checkpoint: Path, directory: Path, bos_token: str | None) -> Path:
    """The checkpoint with a tokenizer that adds nothing and calls `bos_token` its BOS."""
    import shutil

    copy = shutil.copytree(checkpoint, directory)
    for name, changes in (
        ("tokenizer.json", {"post_processor": None}),
        ("tokenizer_config.json", {"bos_token": bos_token}),
    ):
        content = json.loads((copy / name).read_text()) | changes
        (copy / name).write_text(json.dumps(content))
    return copy


@pytest.mark.parametrize(
    ("bos_token", "bos", "found"), [("<bos>", 0, ["missing_bos"]), (None, "no BOS", []), ("<eos>", "no BOS", [])]
)
def test_a_tokenizer_that_adds_no_bos_is_recorded(
    bos_token: str | None, bos: Any, found: list[str], checkpoint: Path, evaluation: Evaluation, execution: Execution,
    ruler_job: Callable[[Path, str], UnitRun], tmp_path: Path,
) -> None:  # fmt: skip
    copy = without_bos(checkpoint, tmp_path / "copy", bos_token)
    job = ruler_job(copy, "VAR A = 12345. Which variables have the value 12345?")
    list(evaluate_checkpoint(copy, [job], evaluation, 512, execution))
    told = json.loads((job.out_dir / "summary.json").read_text())
    assert (told["bos"], told["flags"]) == (bos, found)


def test_one_bos_is_recorded_and_an_echo_is_seen_at_the_model(
    checkpoint: Path, evaluation: Evaluation, execution: Execution, ruler_job: Callable[[Path, str], UnitRun],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    job = ruler_job(checkpoint, PROMPT[:200])
    monkeypatch.setattr(
        EvaluatedModel, "generate_until", lambda self, instances, **_: [i.args[0] + " 12345" for i in instances]
    )
    list(evaluate_checkpoint(checkpoint, [job], evaluation, 512, execution))
    told = json.loads((job.out_dir / "summary.json").read_text())
    assert (told["bos"], told["flags"], told["share_echoed"]) == (1, ["prompt_echoed"], 1.0)
    assert all(row.echoed and row.bos_tokens == 1 for row in read_rows(job.out_dir))
