"""Records that disagree, are stale or are absent: no value, and the reason below the table in Markdown and LaTeX."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from reports_fake_store import LENGTHS, RULER_TASKS, FakeStore

from tokenweight.reports import latex, markdown
from tokenweight.reports.build import build_report
from tokenweight.reports.model import Report

PROTOCOL = {"harness": "lm-eval 0.4.13", "metric": "recall", "fewshot": 0, "template_version": 1, "samples": 4}


def config(data: str = "0", **protocol: Any) -> dict[str, Any]:
    return {"config": {"protocol": PROTOCOL | protocol, "evaluation": {"ruler": {"squad": f"sha256:{data}"}}}}


def ruler(store: FakeStore, row: str, changed: dict[tuple[int, int], dict[str, Any]] | None = None) -> None:
    """All of RULER for a row; `changed` overrides the records of (length, task number)."""
    for length in LENGTHS:
        for number, task in enumerate(RULER_TASKS):
            record = (changed or {}).get((length, number), {})
            store.add(row, f"ruler/{task}/{length}", [0.0, 1.0], record=config() | record)


def said(report: Report, row: str, column: str) -> str:
    """The cell is a dash; its note, which stands below the table in both formats."""
    cell = report.cell(row, column)
    assert cell.value is None
    assert (cell.ci_low, cell.difference, cell.emphasis) == (None, None, ())
    notes = {note.mark: note.text for note in report.notes}
    text = " ".join(notes[mark] for mark in cell.marks)
    assert text
    assert markdown.escape(text) in markdown.render(report)
    assert latex.escape(text) in latex.render(report)
    label = next(r for r in report.rows if r.key == row).label
    index = next(i for i, c in enumerate(report.columns) if c.key == column)
    printed = next(line for line in markdown.render(report).splitlines() if f"| {label} |" in line)
    assert printed.split(" | ")[len(report.stub) + index].startswith("—")
    printed = next(line for line in latex.render(report).splitlines() if f"& {label} &" in f"& {line}")
    assert printed.split(" & ")[len(report.stub) + index].startswith(r"---\textsuperscript{")
    return text


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"versions": {"lm-eval": "0.5.0"}}, "harness version lm-eval differs"),
        (config(harness="lm-eval 0.5.0"), "ruler: protocol.harness differs"),
        (config(samples=500), "ruler: protocol.samples differs"),
        ({"stage_version": 2}, "code: stage version differs"),
    ],
)
def test_two_units_of_one_cell_must_agree(store: FakeStore, record: dict[str, Any], reason: str) -> None:
    ruler(store, "uniform", {(LENGTHS[0], 3): record})
    report = build_report(store.manifest(), store.root)
    text = said(report, "uniform", "ruler-1k")
    assert text.startswith(f"the records of this column cannot be compared: {reason} (uniform")
    assert "ruler/task_03/1024" in text
    assert reason in said(report, "uniform", "ruler")
    assert report.cell("uniform", "ruler-2k").value == 50.0


def test_what_belongs_to_a_task_may_differ_between_tasks(store: FakeStore) -> None:
    ruler(store, "uniform", {(LENGTHS[0], 3): config(metric="part", fewshot=1, generation={"max_new_tokens": 9})})
    assert build_report(store.manifest(), store.root).cell("uniform", "ruler").value == 50.0


@pytest.mark.parametrize("record", [{"versions": {"lm-eval": "0.5.0"}}, {"stage_version": 2}, config(samples=9)])
def test_an_average_of_columns_that_agree_only_within_themselves_is_refused(
    store: FakeStore, record: dict[str, Any]
) -> None:
    ruler(store, "uniform", {(LENGTHS[1], number): record for number in range(13)})
    report = build_report(store.manifest(), store.root)
    assert (report.cell("uniform", "ruler-1k").value, report.cell("uniform", "ruler-2k").value) == (50.0, 50.0)
    assert "cannot be compared" in said(report, "uniform", "ruler")
    assert "cannot be compared" in said(report, "uniform", "average-long")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (config(metric="part"), "ruler/task_03/1024: protocol.metric differs"),
        (config("1"), "ruler/task_03/1024: data digest.ruler.squad differs"),
        ({"inputs": {"prepared": "f" * 64}}, "ruler/task_03/1024: data digest.prepared differs"),
    ],
)
def test_rows_must_agree_unit_by_unit(store: FakeStore, record: dict[str, Any], reason: str) -> None:
    ruler(store, "uniform")
    ruler(store, "lcde", {(LENGTHS[0], 3): record})
    report = build_report(store.manifest(), store.root)
    for row in ("uniform", "lcde"):
        text = said(report, row, "ruler-1k")
        assert reason in text
        assert "(uniform" in text or "(lcde" in text
    assert report.cell("lcde", "ruler-2k").value == 50.0


def test_another_checkpoint_or_context_of_longbench_is_no_disagreement(store: FakeStore) -> None:
    for row in ("uniform", "lcde"):
        store.add(row, "mmlu/anatomy", [0.0, 1.0], record={"inputs": {"checkpoint": row}})
    assert build_report(store.manifest(), store.root).cell("lcde", "mmlu").value == 50.0


@pytest.mark.parametrize("score", [100.0, -1.0, 1.5])
def test_a_score_out_of_its_metrics_range_is_refused(store: FakeStore, score: float) -> None:
    ruler(store, "uniform")
    for entry in store.entries["uniform"]:
        if entry.unit == f"ruler/{RULER_TASKS[0]}/{LENGTHS[0]}":
            store.entries["uniform"].remove(entry)
            break
    shutil.rmtree(store.root / entry.address)
    store.add("uniform", entry.unit, [1.0, score], record=config())
    text = said(build_report(store.manifest(), store.root), "uniform", "ruler-1k")
    assert "1 of 2 samples have a score that is not between 0 and 1" in text


def test_the_perplexity_of_a_diverged_model_overflows_in_its_row_alone(store: FakeStore) -> None:
    nats = {
        "uniform": (3.0, 2.0),
        "frozen-sparse": (2.5, 2.0),
        "lcde": (41_000.0, 42_740.0),
        "frozen-dense": (1.0, 170.0),
    }
    for row, (first, *rest) in nats.items():
        for length in LENGTHS:
            store.add(row, f"perplexity/validation/{length}", [first, *rest] if length == 2048 else [1.0, 2.0])
    report = build_report(store.manifest("table-9"), store.root)
    unit = "perplexity/validation/2048: its value overflows, it is not a finite number (exp of a mean NLL of"
    assert said(report, "lcde", "perplexity-2k") == f"LCDE: {unit} 41,870 nats)"
    assert said(report, "frozen-dense", "perplexity-2k") == f"Dense frozen: {unit} 86 nats)"  # a resample is e^170
    sparse = report.cell("frozen-sparse", "perplexity-2k")
    assert sparse.value == pytest.approx(np.exp(2.25))
    assert sparse.difference is not None
    assert sparse.emphasis == ()  # against rows without a value nothing stands out
    assert report.cell("lcde", "perplexity-1k").value is not None


def test_a_stale_record_is_refused_and_the_repair_is_named(store: FakeStore) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0, 1.0], record={"fingerprint": "0" * 64})
    report = build_report(store.manifest(), store.root)
    assert "stale: its record has another fingerprint than the recipe" in said(report, "uniform", "mmlu")
    assert report.cell("uniform", "mmlu").status == "refused"
    repair = "made by running tokenweight reproduce table-3 --scale smoke with this run's other options"
    assert repair in markdown.render(report)
    assert latex.escape(repair) in latex.render(report)


def test_units_that_an_earlier_recipe_left_are_called_stale_in_one_footnote(store: FakeStore) -> None:
    for row in ("uniform", "lcde"):
        for unit in ("mmlu/anatomy", "mmlu/virology", "longbench/lcc"):
            directory = store.add(row, unit, [0.0, 1.0])
            directory.rename(directory.with_name(f"{directory.name.rpartition('-')[0]}-00000000"))
    report = build_report(store.manifest(), store.root)
    assert report.cell("uniform", "mmlu").status == "missing"
    for row, column in (("uniform", "mmlu"), ("lcde", "mmlu"), ("lcde", "longbench")):
        text = said(report, row, column)
        assert text.startswith("LCDE, Uniform: not evaluated with these settings, data and code; the store has")
    assert "tokenweight reproduce table-3" in markdown.render(report)


def test_partial_and_missing_units_print_a_dash_and_a_note(store: FakeStore) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0, 1.0], n_expected=3)
    store.add("lcde", "mmlu/anatomy", [0.0, 1.0, 1.0], n_expected=3)
    store.add("lcde", "mmlu/virology", None, n_expected=3)
    report = build_report(store.manifest(), store.root)
    assert said(report, "uniform", "mmlu") == "Uniform: 1 of 1 unit partial, mmlu/anatomy (2 of 3 samples)"
    assert said(report, "lcde", "mmlu") == "LCDE: 1 of 2 units missing, mmlu/virology (not evaluated yet)"
    assert report.comparisons == 0


def test_an_empty_store_has_one_footnote(store: FakeStore) -> None:
    store.fill(scores=lambda *_: [0.0])
    for directory in (store.root / "evaluate").iterdir():
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
    report = build_report(store.manifest(), store.root)
    numbered = [note.text for note in report.notes if note.mark is not None]
    assert len(numbered) == 1
    assert numbered[0].endswith("Frozen Sparse, Frozen Dense: not evaluated yet")
    assert {cell.marks for row in report.rows for cell in row.cells if cell.status != "not_in_paper"} == {(1,)}


def test_commits_are_told_and_not_refused(store: FakeStore) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0, 1.0], record={"git": {"commit": "a" * 40, "dirty": False}})
    store.add("lcde", "mmlu/anatomy", [0.0, 1.0], record={"git": {"commit": "b" * 40, "dirty": True}})
    versions = {"versions": {"lm-eval": "0.4.13", "torch": "2.11"}}
    store.add("frozen-sparse", "mmlu/anatomy", [0.0, 1.0], record={"git": {"commit": None}} | versions)
    report = build_report(store.manifest(), store.root)
    assert report.cell("uniform", "mmlu").value == report.cell("lcde", "mmlu").value == 50.0
    text = markdown.render(report)
    assert "Evaluated at 2 commits: aaaaaaaa, bbbbbbbb;" in text
    assert "1 of 3 evaluations ran with uncommitted changes in the checkout." in text
    assert "versions of torch" not in text  # one known version does not differ from none
