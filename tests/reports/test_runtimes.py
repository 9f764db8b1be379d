"""Table 6 from measurements: sums of ratios, absent ones shown as absent, bad files named."""

import json
from pathlib import Path

import pytest

from tokenweight.errors import UserError
from tokenweight.reports.runtimes import read_runtimes, runtime_report
from tokenweight.reports.writing import write_report

RATIOS = {
    "uniform": 1.0,
    "unfrozen dense": 1.186,
    "frozen, scores ready": 0.98,
    "scoring alone": 0.25,
    "scoring alone, llama3.2-1b": 0.05,
}


def measurement(folder: Path, **changes) -> Path:
    content = {
        "model": "llama3-8b",
        "setup": "2 x NVIDIA H200, ZeRO-3",
        "timed_steps": 2,
        "ratios": RATIOS,
        "mfu_uniform": 0.456,
        "long_tokens": 32_768,
        "versions": {"torch": "2.11.0"},
        "all_seconds": [1, 2],
    } | changes
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(content))
    return path


def test_frozen_includes_scoring_and_stands_beside_the_papers(tmp_path):
    report = runtime_report(read_runtimes([measurement(tmp_path)]))
    values = {row.key: row.cells[0].value for row in report.rows}
    assert values["llama-3-8b-uniform"] == 1.0
    assert values["llama-3-8b-unfrozen"] == 1.186
    assert values["llama-3-8b-frozen"] == pytest.approx(0.98 + 0.25)
    assert values["llama-3-8b-frozen-w2s"] == pytest.approx(0.98 + 0.05)
    assert values["llama-3-8b-frozen-ready"] == 0.98
    assert report.cell("llama-3-8b-frozen", "2 x NVIDIA H200, ZeRO-3").paper.printed == "1.24"
    assert report.cell("phi-2-unfrozen", "2 x NVIDIA H200, ZeRO-3").paper.printed == "1.13"


def test_a_note_has_speed_and_memory_of_whole_steps_only(tmp_path):
    whole = {"gpus": 4, "accumulation": 2, "layers": 32, "seconds": {"uniform": 10.0}, "peak_gib": {"uniform": 86.66}}
    part = {"setup": "1 x NVIDIA H200, from 4 and 8 layers", "seconds": {"uniform": 5.0}, "peak_gib": {"uniform": 22.5}}
    files = [measurement(tmp_path, **whole), measurement(tmp_path, **part)]
    notes = [note.text for note in runtime_report(read_runtimes(files)).notes]
    assert any("uniform: 26,214 tokens/s, MFU 0.456, 86.7 GiB of each GPU; torch 2.11.0" in note for note in notes)
    assert any("layers: 32768 tokens, uniform: MFU 0.456; torch 2.11.0" in note for note in notes)


def test_what_was_not_measured_is_shown_as_absent(tmp_path):
    partial = {"uniform": 1.0, "frozen, scores ready": 0.98}
    report = runtime_report(read_runtimes([measurement(tmp_path, ratios=partial)]))
    cell = report.cell("llama-3-8b-frozen", "2 x NVIDIA H200, ZeRO-3")
    assert cell.value is None
    assert cell.status == "missing"
    notes = {note.mark: note.text for note in report.notes}
    assert notes[cell.marks[0]] == "Not measured on 2 x NVIDIA H200, ZeRO-3: scoring alone."
    phi = report.cell("phi-2-unfrozen", "2 x NVIDIA H200, ZeRO-3")
    assert notes[phi.marks[0]] == "Not measured on 2 x NVIDIA H200, ZeRO-3: Phi 2 2.7B."
    assert "llama-3-8b-unfrozen-fp8" not in {row.key for row in report.rows}  # not the paper's, not measured
    assert {mark for row in report.rows for c in row.cells for mark in c.marks} == {m for m in notes if m is not None}


def test_one_column_a_setup_in_all_formats(tmp_path):
    files = [
        measurement(tmp_path),
        measurement(tmp_path, setup="NVIDIA H200, extrapolated"),
        measurement(tmp_path, model="phi-2", setup="NVIDIA H200, extrapolated", ratios={"uniform": 1.0}),
    ]
    written = write_report(runtime_report(read_runtimes(files)), tmp_path / "out")
    markdown = written["md"].read_text()
    assert "| Llama 3 8B | Unfrozen | 1.186 (1.27, -0.084) | 1.186 (1.27, -0.084) |" in markdown
    assert "| Phi 2 2.7B | Uniform | —" in markdown
    assert "95 % intervals" not in markdown
    tex = written["tex"].read_text()
    assert "Unfrozen & 1.186 & 1.186" in tex
    paper = tex.split("The paper, Table 6")[1]
    assert "scores ready &" not in paper  # the paper has no such row, but a rule below its model
    assert paper.count("\\midrule\nPhi 2 2.7B") == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ratios": {"uniform": "fast"}}, "ratios.uniform"),
        ({"setup": None}, "setup"),
        ({"model": "gpt-2"}, "model: Input should be 'llama3-8b' or 'phi-2' .got 'gpt-2'"),
    ],
)
def test_a_bad_file_is_named(tmp_path, changes, said):
    path = measurement(tmp_path, **changes)
    with pytest.raises(UserError, match=said) as error:
        read_runtimes([path])
    assert str(path) in str(error.value)


def test_no_json_missing_and_twice(tmp_path):
    (tmp_path / "text.json").write_text("seconds: 3")
    with pytest.raises(UserError, match="Invalid JSON"):
        read_runtimes([tmp_path / "text.json"])
    with pytest.raises(UserError, match="cannot be read"):
        read_runtimes([tmp_path / "absent.json"])
    path = measurement(tmp_path)
    with pytest.raises(UserError, match="give one of them"):
        read_runtimes([path, path])
