"""Which models `tokenweight evaluate` takes: what their directories say, and what is refused in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenweight.assets import smoke_base_dir
from tokenweight.errors import UserError

SHIPPED = str(smoke_base_dir())
SMOKE = ("--scale", "smoke", "--limit", "1", "--device", "cpu")
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | {
    "original_max_position_embeddings": 128
}
Run = Callable[..., tuple[int, str, str]]


def config_only(directory: Path, **changes: Any) -> Path:
    directory.mkdir()
    config = json.loads((smoke_base_dir() / "config.json").read_text()) | changes
    (directory / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return directory


def with_tokenizer(directory: Path) -> Path:
    for file in smoke_base_dir().glob("tokenizer*"):
        shutil.copy(file, directory)
    return directory


@pytest.mark.parametrize(
    ("changes", "tokenizer", "told"),
    [
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, True, r"not a causal language model \(BertForM"),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, True, "model_type 't5'"),
        ({}, False, "holds no tokenizer.json"),
        ({}, True, "holds no weights"),
        ({"max_position_embeddings": None}, True, "give --context"),
    ],
)
def test_what_cannot_be_evaluated(tmp_path: Path, changes: dict[str, Any], tokenizer: bool, told: str) -> None:
    from tokenweight.evaluation.model_spec import find

    directory = config_only(tmp_path / "model", **changes)
    if tokenizer:
        with_tokenizer(directory)
    if told == "give --context":
        shutil.copy(smoke_base_dir() / "model.safetensors", directory)
    with pytest.raises(UserError, match=told):
        find(str(directory))


def test_an_adapter_and_a_broken_configuration(tmp_path: Path) -> None:
    from tokenweight.evaluation.model_spec import find

    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError, match="merge it into its base"):
        find(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="not a JSON object"):
        find(str(tmp_path))


def test_a_hub_id_is_pinned_to_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the local cache, as without network; an id that is not there is one line."""
    from huggingface_hub import constants

    from tokenweight.evaluation.model_spec import find
    from tokenweight.recipes.schema import HubBase

    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--somebody--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots").mkdir()
    with_tokenizer(config_only(repository / "snapshots" / commit))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    subject = find("somebody/tiny")
    assert subject.base == HubBase(repo_id="somebody/tiny", revision=commit, context_tokens=1024)
    assert subject.label == "tiny"
    with pytest.raises(UserError, match="hf download somebody/else --revision v2"):
        find("somebody/else", "v2")


@pytest.mark.parametrize(
    ("rope", "most"),
    [(None, 1024), ({"rope_type": "yarn", "factor": 4.0}, 4096), (LLAMA_3, 1024)],
)
def test_a_context_ends_where_the_configuration_says(tmp_path: Path, rope: dict[str, Any] | None, most: int) -> None:
    from tokenweight.evaluation.model_spec import find

    directory = with_tokenizer(config_only(tmp_path / "model", rope_scaling=rope))
    shutil.copy(smoke_base_dir() / "model.safetensors", directory)
    assert find(str(directory), context_tokens=most).base.context_tokens == most
    with pytest.raises(UserError, match=rf"--context {most + 1}: config.json of .* says {most} tokens; give at most"):
        find(str(directory), context_tokens=most + 1)


def test_a_directory_that_is_mistyped_gets_the_nearest(tmp_path: Path, run_command: Run) -> None:
    (tmp_path / "runs" / "smoke-base").mkdir(parents=True)
    code, _, error = run_command(tmp_path, "evaluate", "--model", "runs/smoke-bsae", *SMOKE)
    assert (code, error.count("\n")) == (2, 1)
    assert "runs/smoke-bsae: no such directory here; did you mean smoke-base?" in error
    assert "Error" not in error


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--backend", "vllm", "--benchmarks", "perplexity"), "backend vllm: perplexity reads every token's NLL"),
        (("--tensor-parallel", "2", "--benchmarks", "mmlu"), "--tensor-parallel 2: works only with --backend vllm"),
        (("--backend", "vllm", "--benchmarks", "mmlu"), "backend vllm: vllm is not installed in this environment"),
    ],
)
def test_a_backend_that_cannot_run_is_one_line(
    run_command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr("tokenweight.evaluation.vllm.find_spec", lambda name: None)
    code, out, err = run_command(tmp_path, "evaluate", "--model", SHIPPED, *SMOKE, *arguments)
    lines = [line for line in err.splitlines() if line]
    assert (code, out, len(lines)) == (2, "", 1)
    assert told in lines[0]
