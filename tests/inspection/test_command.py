"""The command: what it writes and prints, and what it says to a user's mistakes."""

import json
import sys

import pytest

from tokenweight import cli

OUTPUTS = {"inspection.html", "span.tex", "inspection.json"}


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `tokenweight inspect ...` in this process: (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tokenweight", "inspect", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_writes_page_table_and_numbers(run, base_dir, novel_file, tmp_path) -> None:
    out = tmp_path / "deep" / "out"
    code, printed, _ = run(base_dir, novel_file, "--long-tokens", 120, "--find", "the", "--out", out)
    assert code == 0
    assert {path.name for path in out.iterdir()} == OUTPUTS
    assert "120 tokens" in printed
    assert "6 windows of 30 tokens, one every 22 (default --short-tokens and --stride-tokens)" in printed
    assert "abs_pmi, dense, lambda 0" in printed


def test_json_is_what_the_file_holds(run, base_dir, novel_file, tmp_path) -> None:
    code, printed, _ = run(base_dir, novel_file, "--long-tokens", 60, "--out", tmp_path / "out", "--json")
    assert code == 0
    assert json.loads(printed) == json.loads((tmp_path / "out" / "inspection.json").read_text(encoding="utf-8"))


def test_again_gives_the_same_bytes(run, base_dir, novel_file, tmp_path) -> None:
    arguments = (base_dir, novel_file, "--long-tokens", 60, "--postprocessing", "sparse", "--seed", 3, "--out")
    for name in ("one", "two"):
        assert run(*arguments, tmp_path / name)[0] == 0
    assert all((tmp_path / "one" / n).read_bytes() == (tmp_path / "two" / n).read_bytes() for n in OUTPUTS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--long-tokens", "1025"], "--long-tokens 1025: exceeds the checkpoint's context (1024)"),
        (["--long-tokens", "1"], "--long-tokens"),
        (["--short-tokens", "61"], "--short-tokens, --stride-tokens: short_tokens (61)"),
        (["--short-tokens", "20", "--stride-tokens", "20"], "stride_tokens (20)"),
        (["--lambda", "2"], "lambda"),
        (["--lambda", "0.5", "--postprocessing", "sparse"], "takes no lambda"),
        (["--kappa", "0.5"], "takes no kappa"),
        (["--kappa", "0", "--postprocessing", "sparse"], "kappa"),
        (["--postprocessing", "raw"], "'abs_pmi' works only with postprocessing dense, sparse"),
        (["--score", "excess"], "score 'excess' works only with postprocessing sparse"),
        (["--score", "nothing"], "--score"),
        (["--span", "5"], "--span 5: not START:END"),
        (["--span", "7:7"], "--span 7:7: not START:END"),
        (["--span", "50:61"], "--span 50:61: the text has tokens 0 to 59"),
        (["--span", "0:500"], "--span 0:500: 500 tokens"),
        (["--find", "nowhere in it"], "--find 'nowhere in it': not in the first 60 tokens"),
        (["--find", ""], "--find"),
        (["--find", "a", "--span", "1:3"], "--span and --find"),
        (["--out", "/dev/null"], "--out /dev/null"),
        (["--scorer", "nowhere"], "nowhere: no config.json here"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_bad_options_are_told_in_one_line(run, base_dir, novel_file, tmp_path, monkeypatch, options, message) -> None:
    monkeypatch.chdir(tmp_path)
    _refuse_to_load(monkeypatch)
    sized = options if "--long-tokens" in options else ["--long-tokens", "60", *options]
    code, printed, told = run(base_dir, novel_file, *sized)
    assert (code, printed) == (2, "")
    assert message in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "the file is empty"),
        (b"caf\xe9", "line 1: not UTF-8 (byte 0xe9)"),
        (b"ab c", "--long-tokens 60"),
    ],
)
def test_bad_texts_are_told_in_one_line(run, base_dir, tmp_path, monkeypatch, content, message) -> None:
    _refuse_to_load(monkeypatch)
    text = tmp_path / "text.txt"
    if content is not None:
        text.write_bytes(content)
    code, _, told = run(base_dir, text, "--long-tokens", 60, "--out", tmp_path / "out")
    assert code == 2
    assert message in told
    assert told.count("\n") == 1


def test_a_score_that_fails_at_this_text_is_told_in_one_line(run, base_dir, novel_file, tmp_path) -> None:
    """At the few numbers with which it is tried before the model is loaded it does not."""
    own = tmp_path / "own.py"
    own.write_text("def mine(long_nll):\n    if len(long_nll) == 1:\n        exit()\n    return long_nll\n")
    options = ("--long-tokens", 60, "--out", tmp_path / "out", "--score", f"{own}:mine")
    assert run(base_dir, novel_file, *options) == (1, "", f"error: score {own}:mine: SystemExit: None (line 3)\n")


def test_bad_checkpoints_are_told_in_one_line(run, novel_file, base_dir, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "half" / name).write_bytes((base_dir / name).read_bytes())
    for checkpoint, message in (
        ("nowhere", "nowhere: no config.json here"),
        (novel_file, "no config.json here"),
        (tmp_path / "empty", "no config.json"),
        (tmp_path / "half", "half: holds no weights ("),
    ):
        code, _, told = run(checkpoint, novel_file, "--out", tmp_path / "out")
        assert code == 2
        assert message in told
        assert told.count("\n") == 1


def test_a_scorer_of_another_vocabulary_is_refused(run, base_dir, novel_file, tmp_path, monkeypatch) -> None:
    _refuse_to_load(monkeypatch)
    other = tmp_path / "other"
    other.mkdir()
    for path in base_dir.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    content = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
    last = max(content["model"]["vocab"].values())
    content["model"]["vocab"] = {
        token: {last: last - 1, last - 1: last}.get(index, index) for token, index in content["model"]["vocab"].items()
    }
    (other / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    code, _, told = run(base_dir, novel_file, "--scorer", other, "--out", tmp_path / "out")
    assert code == 2
    assert "has another vocabulary than CHECKPOINT" in told


def test_windows_beyond_the_scorers_context_are_refused(run, base_dir, extended_dir, novel_file, tmp_path) -> None:
    options = ("--scorer", base_dir, "--short-tokens", 1025, "--out", tmp_path / "out")
    code, _, told = run(extended_dir, novel_file, *options)
    assert code == 2
    assert "--short-tokens 1025: exceeds the scorer's context (1024)" in told


def _refuse_to_load(monkeypatch) -> None:
    def load(*_: object) -> None:
        raise AssertionError("a model was loaded before the input was checked")

    monkeypatch.setattr("tokenweight.inspection.compute.load_model", load)
