"""What a user gets wrong is told in one line, with exit code 2, and nothing is left behind."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests_pipeline import command, environment, run

from tokenweight.cli import main

TEXT = "The river runs past the old mill and the miller counts his sacks. " * 50


def corpus(directory: Path, **files: bytes) -> str:
    directory.mkdir()
    for name, content in files.items():
        (directory / name.replace("_", ".")).write_bytes(content)
    return str(directory)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "table-99"], "target 'table-99': unknown"),
        (
            ["reproduce", "table-3", "--scale", "huge"],
            "scale 'huge': unknown; choose one of smoke, mini, mini-31m, paper",
        ),
        (["reproduce", "table-3", "--corpus", "nowhere"], "--corpus nowhere: does not exist"),
        (["reproduce", "table-3", "--mmlu", "nowhere"], "--mmlu nowhere: does not exist"),
        (["reproduce", "table-3", "--base", "nowhere"], "--base nowhere: does not exist"),
        (["reproduce", "table-3", "--set", "weighting.kappa=0"], "weighting.kappa"),
        (["reproduce", "table-3", "--set", "weighting.lambda=2"], "weighting.lambda"),
        (["reproduce", "table-3", "--set", "scorer.stride_tokens=2000"], "stride_tokens (2000)"),
        (["reproduce", "table-3", "--set", "training.stepz=1"], "training.stepz"),
        (["reproduce", "table-3", "--scale", "paper"], "missing: "),
        (
            ["reproduce", "table-3", "--device", "cuda", "--launcher", "torchrun", "--processes", "64"],
            "device cuda: 64 GPUs",
        ),
        (["reproduce", "table-3", "--processes", "2"], "execution.launcher: 'inline' is one process"),
        (
            ["reproduce", "table-3", "--launcher", "torchrun", "--processes", "3"],
            "training.sequences_per_step: 2 is not",
        ),
        (["plan", "table-3", "--launcher", "torchrun", "--processes", "3"], "training.sequences_per_step: 2 is not"),
        (["plan", "table-3", "--execution", "nodes=two"], "execution.nodes: "),
        (["plan", "table-3", "--execution", "nods=2"], "--execution nods: no such field; did you mean nodes?"),
        (["plan", "table-3", "--execution", "nodes"], "--execution nodes: not of the form key=value"),
        (
            ["reproduce", "table-3", "--processes", "0"],
            '"0" for --processes. Input should be greater than or equal to 1',
        ),
        (["plan", "table-3", "--seeds", "two"], "--seeds"),
        (["plan", "table-3", "--seeds", "100000"], '"100000" for --seeds. Input should be less than or equal to 100'),
        (["plan", "table-3:100000"], "table-3:100000: 100000 seeds are not possible"),
        (["reproduce", "table-3", "--corpus", ""], "--corpus: is empty; give a value, or leave it out"),
        (["plan", "table-3", "--store="], "--store: is empty; give a value"),
        (["score", "", "--model", "gpt2", "--out", "w"], "an argument: is empty; give a value"),
        (["score", ".", "--model", "gpt2", "--out", "w", "--seed", "4294967296"], "--seed. Input should be less than"),
        (["reproduce"], "EXPERIMENTS requires an argument"),
        (["reproduce", "table-3", "--store"], "--store requires an argument"),
        (["reproduce", "table-3", "--target", "table-4"], "--target"),
        (["reproduce", "table-3", "--empty-set"], "--empty-set"),
        (["plan", "table-3", "--no-json"], "--no-json"),
        (["reprodcue", "table-3"], 'Did you mean "reproduce"?'),
        (["reproduce", "table-3", "--out", "/dev/null"], "--out /dev/null"),
        (["reproduce", "table-3", "--store", "/dev/null/store"], "--store"),
        (["reproduce", "table-3", "--base", "pretrain", "--tokenizer", "/dev"], "no tokenizer.json"),
        (["reproduce", "table-3", "--set", "training.learning_rate=1e400"], "training.learning_rate"),
        (["reproduce", "table-3", "--set", "training.steps=-3"], "training.steps"),
        (["report", "table-3", "--store", "nowhere"], "--store nowhere: no such directory"),
        (["show-config", "table-3/nothing"], "recipe 'table-3/nothing'"),
        (["plan", "table-3", "--no-such-option"], "--no-such-option"),
    ],
)
def test_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In this process: all of them end before anything is started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tokenweight", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    told = capfd.readouterr()
    assert_one_line(end.value.code, told.out, told.err, message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "table-3", "--device", "huge"], "--device"),
        (["reproduce", "table-3", "--launcher", "torchrun", "--processes", "3"], "is not"),
    ],
    ids=["by cyclopts", "by us, with torch loaded"],
)
def test_a_process_ends_so(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert_one_line(done.returncode, done.stdout, done.stderr, message)


def assert_one_line(code: object, out: str, err: str, message: str) -> None:
    assert code == 2, err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert "Traceback" not in out + err


def test_a_locale_that_is_not_utf_8_is_none_of_ours(tmp_path: Path) -> None:
    """What is printed and read is UTF-8, also by libraries that do not say so, such as wonderwords."""
    (tmp_path / "store").mkdir()
    shell = {**environment(tmp_path), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    arguments = command("report", "table-4", "--style", "paper")
    done = subprocess.run(arguments, cwd=tmp_path, env=shell, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not done.stdout.decode("utf-8").isascii()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "empty"),
        ({"a_txt": b""}, "a.txt"),
        ({"a_txt": b"caf\xe9 " * 9000, "b_txt": TEXT.encode()}, "a.txt"),
        ({f"{i}_txt": TEXT.encode() for i in range(12)}, "long_tokens"),
    ],
    ids=["empty directory", "empty file", "not UTF-8", "documents shorter than a chunk"],
)
def test_bad_text_is_named_before_any_long_work(
    files: dict[str, bytes], message: str, tmp_path: Path, run_command: Any, pieces_in_order: None
) -> None:
    directory = corpus(tmp_path / "text", **files)
    code, out, err = run_command(tmp_path, "reproduce", "table-3/uniform@mmlu", "--corpus", directory)
    assert code == 2, err[-2000:]
    assert message in err.strip().splitlines()[-1]
    assert "Traceback" not in out + err
    assert not (tmp_path / "store" / "train").exists()
    assert list((tmp_path / "store").glob("*/.*.partial")) == []
