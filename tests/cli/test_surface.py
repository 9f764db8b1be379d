"""The command line's surface and the record's schema: a change of either shows in a diff of a golden file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App

import tokenweight
from tokenweight.cli import COMMANDS, app, main
from tokenweight.pipeline.stage import Identity
from tokenweight.pipeline.store import Store, read_record

HERE = Path(__file__).parent


def arguments(name: str) -> list[Any]:
    """A command's arguments and options, as cyclopts has them."""
    found: App = app
    for part in name.split():
        found = found[part]
    return list(found.assemble_argument_collection(parse_docstring=True))


def surface() -> str:
    """One line per command with its arguments and options."""
    lines = [
        f"{name}: {' '.join(option for one in arguments(name) for option in one.names if not option.startswith('--no-'))}"
        for name in sorted(COMMANDS)
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_no_option_twice_and_describes_each(name: str) -> None:
    every = arguments(name)
    options = [option for one in every for option in one.names]
    assert len(options) == len(set(options))
    for one in every:
        assert one.parameter.help, one.name
    assert not [option for option in options if option.startswith("--empty-")]
    assert [option for option in options if option.startswith("--no-")] in ([], ["--no-figures"])


def test_commands_and_options_are_stable() -> None:
    assert surface() == (HERE / "golden-surface.txt").read_text()


def test_version_is_that_of_the_package(run_command: Any, tmp_path: Path) -> None:
    assert run_command(tmp_path, "--version") == (0, f"{tokenweight.__version__}\n", "")


def keys(value: object) -> object:
    """The shape of a record: names of fields and kinds of values."""
    if isinstance(value, dict):
        return {key: keys(item) for key, item in sorted(value.items())}
    return type(value).__name__


def test_the_records_schema_is_stable(tmp_path: Path) -> None:
    store, identity = Store(tmp_path), Identity("chunk", 1, "novel", {"seed": 1}, {"tokenizer": "ff"})
    with store.building(identity) as work:
        assert work is not None
        (work.directory / "tokens.npy").write_bytes(b"x")
        work.facts["sequences"] = 1
    record = read_record(store.path(identity))
    record["versions"] = {"python": record["versions"]["python"]}  # which packages are there depends on the machine
    record["peak_memory_bytes"] = {"host": record["peak_memory_bytes"]["host"]}
    record["git"] = dict.fromkeys(record["git"], "str or bool or None")
    assert keys(record) == json.loads((HERE / "golden-record.json").read_text())


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['tokenweight', '--help']\n"
        "from tokenweight.cli import main; main()\n"
        "print([m for m in ('torch', 'transformers', 'prefect', 'pandas', 'lm_eval') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


def test_doctor_names_what_is_here_and_what_is_not(tmp_path: Path) -> None:
    code = "from tokenweight.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    findings = {finding["name"]: finding["status"] for finding in json.loads(done.stdout)}
    assert {findings[name] for name in ("python", "torch", "prefect", "smoke base model", "disk for smoke")} == {"ok"}
    assert "meta-llama/Meta-Llama-3-8B" in findings


def test_doctor_counts_what_a_run_left_that_holds_something(tmp_path: Path) -> None:
    from tokenweight.commands.doctor import examine

    for number in range(2):
        (tmp_path / f"train/.mine-0000000{number}.partial").mkdir(parents=True)
    (tmp_path / "train/.mine-00000001.partial/metrics.jsonl").write_text("{}\n")
    (left,) = (finding for finding in examine(tmp_path) if finding.name == "unfinished artifacts")
    assert left.detail == "1 (train/mine-00000001); the next run resumes them"


def test_doctor_names_a_lock_that_would_stall_deepspeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenweight.commands.doctor import examine

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    assert "torch extension" not in {finding.name for finding in examine(tmp_path)}
    (tmp_path / "py311_cpu" / "shm").mkdir(parents=True)
    (tmp_path / "py311_cpu" / "shm" / "lock").touch()
    found = [finding for finding in examine(tmp_path) if finding.name == "torch extension"]
    assert str(tmp_path / "py311_cpu" / "shm" / "lock") in found[0].detail


def test_show_config_gives_value_and_origin(tmp_path: Path) -> None:
    code = "from tokenweight.cli import main; main()"
    command = [sys.executable, "-c", code, "show-config", "table-3/frozen-sparse", "--scale", "paper", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)
    assert shown["weighting.kappa"] == {"value": 0.4, "origin": "Section 4, Weighting variants: kappa 0.4 for frozen"}
    assert shown["extension.rope_theta"]["value"] == 15.3e6


def test_names_stay_whole_in_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tokenweight.commands.command import print_table

    monkeypatch.setenv("TERM", "dumb")  # of 80 columns
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(
        ("key", "value", "hours"), [("evaluation.perplexity.corpus.path", "long " * 40, "1,234")], numbers_from=2
    )
    shown = capsys.readouterr().out
    assert "evaluation.perplexity.corpus.path" in shown
    assert "1,234" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_narrow_terminal_folds_all_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenweight.commands.command import print_table

    monkeypatch.setenv("COLUMNS", "61")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(("key", "value"), [("evaluation.perplexity.corpus.parts.1.corpus.path", '{"kind": "novel"}')])
    shown = capsys.readouterr().out
    assert '{"kind":' in shown
    assert len(shown.splitlines()) < 8


def test_a_disk_that_is_full_is_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        monkeypatch.setattr("sys.argv", ["tokenweight", "--version"])
        with pytest.raises(SystemExit, match="1"):
            main()
    message = "error: the output: cannot be written (No space left on device); make room, or send it elsewhere\n"
    assert capsys.readouterr().err == message


def test_closed_standard_streams_print_nowhere() -> None:
    command = f'{sys.executable} -c "from tokenweight.cli import main; main()" targets'
    done = subprocess.run(
        f"{command} <&- >&- && {command} 2>&-", shell=True, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "table-3" in done.stdout


def test_whoever_reads_a_pipe_gets_rows_as_lines_and_may_leave() -> None:
    command = [sys.executable, "-c", "from tokenweight.cli import main; main()"]
    done = subprocess.run([*command, "show-config", "table-3/uniform"], capture_output=True, text=True, check=True)
    title, *rows = done.stdout.splitlines()
    assert title == "table-3/uniform at scale smoke"
    assert {line.count("\t") for line in rows} == {2}
    unread, pipe = os.pipe()
    os.close(unread)
    done = subprocess.run([*command, "targets", "--json"], stdout=pipe, stderr=subprocess.PIPE, text=True)
    os.close(pipe)
    assert (done.stderr, done.returncode) == ("", 128 + signal.SIGPIPE)


def test_doctor_prints_what_it_found_letter_by_letter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenweight.commands import doctor

    found = [doctor.Finding("deepspeed", "absent", "pip install -e '.[deepspeed]'")]
    monkeypatch.setattr(doctor, "examine", lambda store_root: found)
    doctor.doctor()
    assert ".[deepspeed]" in capsys.readouterr().out
