"""`tokenweight ruler generate`: the file it writes, and one line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenweight.cli import app
from tokenweight.errors import UserError
from tokenweight.evaluation.ruler.generator import generate
from tokenweight.evaluation.ruler.tasks import Sources


def command(tokenizer: Path, out: Path, *extra: str, task: str = "niah_single_2", length: str = "1024") -> None:
    given = ["ruler", "generate", "--tokenizer", str(tokenizer), "--task", task, "--length", length, "--out", str(out)]
    app([*given, *extra], exit_on_error=False, print_error=False)


def test_the_file_holds_the_samples_and_the_fill_ratio_is_told(
    smoke_tokenizer: Path, sources: Sources, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "samples.jsonl"
    command(smoke_tokenizer, out, "--samples", "3", "--seed", "7", "--haystack", str(sources["haystack"]))
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert rows == generate("niah_single_2", 1024, 3, 7, smoke_tokenizer, sources)
    assert list(rows[0]) == ["index", "input", "answer_prefix", "outputs", "length"]
    fill = [row["length"] / 1024 for row in rows]
    told = capsys.readouterr().out
    assert f"3 samples, fill ratio mean {sum(fill) / 3:.4f}, min {min(fill):.4f}" in told
    assert [path.name for path in out.parent.iterdir()] == ["samples.jsonl"]  # nothing half-written is left


def test_mistakes_are_told_in_the_commands_words(smoke_tokenizer: Path, tmp_path: Path) -> None:
    out = tmp_path / "samples.jsonl"
    with pytest.raises(UserError, match=r"^--length: 100 is too short; use at least 512"):
        command(smoke_tokenizer, out, length="100")
    with pytest.raises(UserError, match=r"^--length: cwe at 512 cannot fit 512 tokens .* use a longer length"):
        command(smoke_tokenizer, out, task="cwe", length="512")
    with pytest.raises(UserError, match=r"^--task 'niah': unknown; choose one of niah_single_1"):
        command(smoke_tokenizer, out, task="niah")
    with pytest.raises(UserError, match=r"^--haystack: .*nowhere does not exist"):
        command(smoke_tokenizer, out, "--haystack", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"^--haystack: .*nowhere does not exist"):  # a task that reads none
        command(smoke_tokenizer, out, "--haystack", str(tmp_path / "nowhere"), task="vt")
    with pytest.raises(UserError, match=r"^--squad: .* is a directory"):
        command(smoke_tokenizer, out, "--squad", str(tmp_path), task="qa_1")
    with pytest.raises(UserError, match=r"tokenizer.json: is a file; give its directory"):
        command(smoke_tokenizer / "tokenizer.json", out)
    with pytest.raises(UserError, match=r"^--samples: 100000 are asked for, the question file has"):
        command(smoke_tokenizer, out, "--samples", "100000", task="qa_1")
    with pytest.raises(UserError, match=r"holds no tokenizer.json"):
        command(tmp_path, out)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"no tokenizer can be loaded .*; give a directory with one"):
        command(tmp_path, out)
    with pytest.raises(UserError, match=r"^--out .*: is a directory; give a file"):
        command(smoke_tokenizer, tmp_path)
    with pytest.raises(UserError, match=r"^--out .*tokenizer.json is not a directory that can be written"):
        command(smoke_tokenizer, tmp_path / "tokenizer.json" / "samples.jsonl")
    assert not out.exists()


def test_a_writing_that_fails_leaves_the_old_file(
    smoke_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "samples.jsonl"
    out.write_text("old\n")

    def replace(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(UserError, match=r"^--out .*: cannot be written \(No space left on device\)"):
        command(smoke_tokenizer, out, "--samples", "1")
    assert [path.name for path in tmp_path.iterdir()] == ["samples.jsonl"]
    assert out.read_text() == "old\n"
