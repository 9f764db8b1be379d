"""`tokenweight agree`: one command in two environments, with vllm's stand-in in its own process."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tokenweight.corpus.assets import smoke_base_dir
from tokenweight.evaluation.vllm import check as vllm_check

STAND_IN = Path(__file__).parents[1] / "evaluation" / "stand_in"
ARGUMENTS = ("--model", str(smoke_base_dir()), "--scale", "smoke", "--device", "cpu", "--benchmarks", "mmlu")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, run_command: Run) -> Run:
    """Runs a command in an empty directory."""
    return partial(run_command, tmp_path)


def test_one_command_in_two_environments(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tokenweight.tasks import agree

    monkeypatch.setattr(vllm_check, "find_spec", lambda name: None)
    code, out, err = run("agree", *ARGUMENTS)  # where vllm is not: hf's half is made and kept
    assert (code, out) == (2, "")
    assert "backend vllm: vllm is not installed in this environment; run the same command" in err.splitlines()[-1]
    assert len(list(tmp_path.glob("store/evaluate/*/record.json"))) == 57

    monkeypatch.undo()
    monkeypatch.setattr(os, "environ", {**os.environ, "PYTHONPATH": str(STAND_IN)})
    monkeypatch.syspath_prepend(str(STAND_IN))
    try:
        code, out, err = run("agree", *ARGUMENTS)
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]
    assert code == 0, err
    assert "The backends agree within the bounds of fp32" in out
    assert len(list(tmp_path.glob("store/evaluate/*-vllm-*/record.json"))) == 57

    monkeypatch.setattr(agree, "run_both", lambda *_: None)
    elsewhere = tmp_path / "elsewhere" / "evaluate"
    elsewhere.mkdir(parents=True)
    for place in tmp_path.glob("store/evaluate/*-vllm-*"):
        shutil.move(place, elsewhere)
    code, out, _ = run("agree", *ARGUMENTS, "--other-store", "elsewhere", "--json")
    found = json.loads(out)
    assert (code, found["disagreements"], found["backends"]) == (0, [], ["hf", "vllm"])
    assert [(one["benchmark"], one["n"], one["prompts_differ"]) for one in found["benchmarks"]] == [("mmlu", 57, 0)]

    original = agree.read_rows
    monkeypatch.setattr(
        agree,
        "read_rows",
        lambda place: [
            replace(row, n_prompt_tokens=row.n_prompt_tokens - ("vllm" in place.name)) for row in original(place)
        ],
    )
    code, out, err = run("agree", *ARGUMENTS, "--other-store", "elsewhere")
    assert (code, err) == (1, "error: hf and vllm do not agree: mmlu: 57 of 57 prompts differ\n")
    assert "| mmlu | 57 | 0.0% | 100.0% |" in out


@pytest.mark.parametrize(
    ("command", "arguments", "told"),
    [
        ("agree", ("--backends", "hf"), "--backends hf: not two different ones of hf, vllm"),
        ("agree", ("--backends", "hf,hf"), "--backends hf,hf: not two different ones"),
        ("agree", ("--backends", "hf,tgi"), "--backends hf,tgi: not two different ones"),
        ("agree", ("--limit", "2", "--whole"), "--limit 2: does not go with --whole"),
        ("agree", ("--benchmarks", "perplexity"), "backend vllm: perplexity reads every token's NLL"),
        ("evaluate", ("--backend", "vllm", "--benchmarks", "perplexity"), "backend vllm: perplexity reads"),
        ("evaluate", ("--tensor-parallel", "2"), "--tensor-parallel 2: belongs to --backend vllm"),
        ("evaluate", ("--backend", "vllm"), "backend vllm: vllm is not installed in this environment"),
    ],
)
def test_mistakes_are_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr(vllm_check, "find_spec", lambda name: None)
    usual = ARGUMENTS[:-2] if "--benchmarks" in arguments else ARGUMENTS
    code, out, err = run(command, *usual, *arguments)
    lines = [line for line in err.splitlines() if line]
    assert (code, out, len(lines)) == (2, "", 1)
    assert told in lines[0]


def test_samples_are_spread_over_the_tasks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenweight.pipeline import Store
    from tokenweight.planning.experiments import PlannedExperiment
    from tokenweight.tasks import agree

    asked: dict[str, int | None] = {}

    def note(planned: tuple[PlannedExperiment, ...], stores: tuple[Store, ...], *_: object) -> None:
        evaluation = planned[1].resolved.loaded[0].recipe.evaluation
        for name in ("ruler", "longbench", "mmlu", "bbh"):
            asked[name] = getattr(evaluation, name).samples
        raise KeyboardInterrupt

    monkeypatch.setattr(agree, "run_both", note)
    every = (*ARGUMENTS[:-1], "ruler,longbench,mmlu,bbh")
    run("agree", *every, "--samples", "20")
    assert asked == {"ruler": 2, "longbench": 2, "mmlu": 1, "bbh": 1}
    run("agree", *every, "--limit", "1")
    assert asked == {"ruler": 1, "longbench": 1, "mmlu": 1, "bbh": 1}
    run("agree", *every, "--whole")
    assert asked == {"ruler": 2, "longbench": None, "mmlu": 2, "bbh": 1}
