"""Cells from a store: values by hand, gaps, refusals, intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reports_fake_store import LENGTHS, LONGBENCH_TASKS, RULER_TASKS, FakeStore, all_units, manifest_of

from tokenweight.errors import UserError
from tokenweight.pipeline.experiment import Lengths
from tokenweight.pipeline.manifest import Manifest, read_manifest
from tokenweight.reports.build import build_report
from tokenweight.reports.model import Report


def single_row(store: FakeStore, row: str = "uniform", **ruler: list[float] | None) -> Report:
    """Table 3 with one row; scores of RULER tasks at 1024 tokens can be given by task."""
    for benchmark, task, length in all_units(short_context=False):
        unit = "/".join(filter(None, (benchmark, task, str(length or ""))))
        scores: list[float] | None = [0.0, 1.0]
        if benchmark == "ruler" and length == LENGTHS[0] and task in ruler:
            scores = ruler[task]
        store.add(row, unit, scores, n_expected=2, tokens=[10, 9999] if benchmark == "longbench" else None)
    return build_report(store.manifest(), store.root)


def note_texts(report: Report, row: str, column: str) -> list[str]:
    notes = {note.mark: note.text for note in report.notes}
    return [notes[mark] for mark in report.cell(row, column).marks]


def test_values_by_hand(store: FakeStore) -> None:
    rng = np.random.default_rng(0)
    scores: dict[str, list[float]] = {}
    tokens: dict[str, list[int]] = {}
    for benchmark, task, length in all_units(short_context=False):
        unit = "/".join(filter(None, (benchmark, task, str(length or ""))))
        n = 5 if task == "anatomy" else 3
        scores[unit] = rng.random(n).round(3).tolist()
        tokens[unit] = [1024, 1025, 7000] if task != "lcc" else [5, 6, 7]
        store.add("uniform", unit, scores[unit], tokens=tokens[unit] if benchmark == "longbench" else None)
    report = build_report(store.manifest(), store.root)

    def mean(names: list[str], keep: Any = lambda n_tokens: True) -> float:
        tasks = [[s for s, t in zip(scores[n], tokens[n], strict=True) if keep(t)] for n in names]
        return 100 * float(np.mean([np.mean(task) for task in tasks if task]))

    longbench = [f"longbench/{task}" for task in LONGBENCH_TASKS]
    ruler = {length: mean([f"ruler/{task}/{length}" for task in RULER_TASKS]) for length in LENGTHS}
    mmlu = 100 * float(np.mean(scores["mmlu/anatomy"] + scores["mmlu/virology"]))  # micro: by question
    expected = {
        "mmlu": mmlu,
        "longbench": mean(longbench),
        "longbench-le1k": mean(longbench, lambda n_tokens: n_tokens <= 1024),
        "longbench-gt1k": mean(longbench, lambda n_tokens: n_tokens > 1024),
        "ruler": float(np.mean(list(ruler.values()))),
        "ruler-3k": ruler[3072],
        "average-long": (mean(longbench) + float(np.mean(list(ruler.values())))) / 2,
        "average-full": (mmlu + mean(longbench) + float(np.mean(list(ruler.values())))) / 3,
    }
    for column, value in expected.items():
        assert report.cell("uniform", column).value == pytest.approx(value), column
    assert report.cell("uniform", "mmlu").n == 8
    assert report.cell("uniform", "ruler").n == 13 * 4 * 3
    assert report.cell("uniform", "mmlu").n_expected is None
    assert any("LongBench >1024 tokens" in n.text and "lcc" in n.text for n in report.notes)


def test_perplexity_is_exp_of_the_mean_nll(store: FakeStore) -> None:
    for length in LENGTHS:
        store.add("uniform", f"perplexity/validation/{length}", [1.0, 3.0])
    report = build_report(store.manifest("table-9"), store.root)
    cell = report.cell("uniform", "perplexity-2k")
    assert cell.value == pytest.approx(np.exp(2.0))
    assert cell.ci_low is not None
    assert 0 < cell.ci_low < np.e  # of two texts, over their NLL
    assert cell.paper is not None
    assert cell.paper.printed == "8.75"


def test_cells_that_the_paper_leaves_empty_stay_so(full_store: FakeStore) -> None:
    report = build_report(full_store.manifest(), full_store.root)
    row = {c.key: report.cell("no-train-8k", c.key).status for c in report.columns}
    assert {key for key, status in row.items() if status == "complete"} == {"mmlu", "longbench", "ruler-1k"}
    assert {status for key, status in row.items() if key not in ("mmlu", "longbench", "ruler-1k")} == {"not_in_paper"}
    assert not [note for note in report.notes if note.mark is not None]
    others = [cell.status for r in report.rows if r.key != "no-train-8k" for cell in r.cells]
    assert others == ["complete"] * (7 * 11)


def test_labels_scale_with_the_run(full_store: FakeStore) -> None:
    report = build_report(full_store.manifest(), full_store.root)
    assert [c.label for c in report.columns][2:9] == ["≤1k", ">1k", "combined", "1k", "2k", "3k", "4k"]
    assert [c.paper_label for c in report.columns][2:9] == ["≤8k", ">8k", "combined", "8k", "16k", "24k", "32k"]
    assert [r.label for r in report.rows][:2] == ["1k", "4k"]
    other = build_report(
        manifest_of("table-3", full_store.manifest().rows, Lengths(ruler=(1024, 3072), longbench_split=1024)),
        full_store.root,
    )
    printed = [other.cell("uniform", f"ruler-{key}").paper for key in ("1k", "3k")]
    assert [p.printed for p in printed if p] == ["91.82", "88.87"]  # the same multiples of the base's context


def test_a_missing_unit_is_a_dash_with_a_reason(store: FakeStore) -> None:
    report = single_row(store, task_03=None)
    assert report.cell("uniform", "ruler-1k").status == "missing"
    assert report.cell("uniform", "ruler-1k").n == 24
    for column in ("ruler-1k", "ruler", "average-long", "average-full"):  # never a mean over the rest
        assert report.cell("uniform", column).value is None
        assert note_texts(report, "uniform", column) == [
            "Uniform: 1 of 13 units missing, ruler/task_03/1024 (not evaluated yet)"
        ]
    assert report.cell("uniform", "ruler-2k").status == "complete"
    (absent,) = note_texts(report, "lcde", "average-full")
    assert absent.startswith("No-train 1k, No-train 4k, LCDE, Unfrozen Sparse")
    assert absent.endswith(": not in this run")


def test_a_partial_unit_has_no_value(store: FakeStore) -> None:
    report = single_row(store, task_03=[1.0])
    cell = report.cell("uniform", "ruler-1k")
    assert (cell.status, cell.value, cell.n, cell.n_expected) == ("partial", None, 25, 26)
    assert "1 of 2 samples" in note_texts(report, "uniform", "ruler-1k")[0]


def test_the_evaluations_own_count_stands_in_for_the_manifests(store: FakeStore) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0, 1.0], summary_n_expected=5)
    cell = build_report(store.manifest(), store.root).cell("uniform", "mmlu")
    assert (cell.status, cell.value, cell.n, cell.n_expected) == ("partial", None, 2, 5)


def test_a_task_that_the_run_lacks_is_not_left_out_of_the_mean(store: FakeStore) -> None:
    for task in LONGBENCH_TASKS[1:]:
        store.add("uniform", f"longbench/{task}", [1.0, 1.0], tokens=[1, 9999])
    for task in RULER_TASKS[1:]:
        store.add("uniform", f"ruler/{task}/1024", [1.0, 1.0])
    report = build_report(store.manifest(), store.root)
    assert note_texts(report, "uniform", "longbench") == ["Uniform: the run has no unit of longbench for narrativeqa"]
    assert note_texts(report, "uniform", "ruler-1k") == ["Uniform: the run has 12 of 13 tasks of ruler at 1024 tokens"]
    assert report.cell("uniform", "average-long").value is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scores": [0.0, float("nan")]}, "1 of 2 samples have no score"),
        ({"scores": [0.0, 1.0, 1.0]}, "3 samples where 2 were asked for"),
        ({"scores": [0.0, 1.0], "doc_ids": [4, 4]}, "the same sample appears twice"),
        ({"scores": [0.0, 1.0], "record": {"fingerprint": "f" * 64}}, "stale"),
        ({"scores": [0.0, 1.0], "damage": "rows.parquet"}, "rows.parquet has 1 bytes, not "),
        ({"scores": [0.0, 1.0], "damage": "summary.json"}, "summary.json has 1 bytes, not "),
        ({"scores": [0.0, 1.0], "damage": "record.json"}, "its record cannot be read"),
    ],
)
def test_unsound_units_are_refused(store: FakeStore, change: dict[str, Any], reason: str) -> None:
    damage = change.pop("damage", None)
    directory = store.add("uniform", "mmlu/anatomy", n_expected=2, **change)
    if damage:
        (directory / damage).write_text("{")
    report = build_report(store.manifest(), store.root)
    assert report.cell("uniform", "mmlu").status == "refused"
    assert report.cell("uniform", "mmlu").value is None
    assert reason in note_texts(report, "uniform", "mmlu")[0]


def test_a_changed_score_is_refused(store: FakeStore) -> None:
    """The record's digest is checked when samples are read: else a number that no model gave would be printed."""
    directory = store.add("uniform", "mmlu/anatomy", [0.0, 1.0, 0.0])
    content = (directory / "rows.parquet").read_bytes()
    pq.write_table(pq.read_table(directory / "rows.parquet"), directory / "rows.parquet")
    assert (directory / "rows.parquet").read_bytes() == content
    changed = pq.read_table(directory / "rows.parquet").set_column(10, "score", pa.array([1.0, 1.0, 1.0]))
    pq.write_table(changed, directory / "rows.parquet")
    record = json.loads((directory / "record.json").read_text())
    record["outputs"]["rows.parquet"]["bytes"] = (directory / "rows.parquet").stat().st_size
    (directory / "record.json").write_text(json.dumps(record))
    report = build_report(store.manifest(), store.root)
    assert (report.cell("uniform", "mmlu").status, report.cell("uniform", "mmlu").value) == ("refused", None)
    assert "rows.parquet has other contents than its record says" in note_texts(report, "uniform", "mmlu")[0]
    assert "tokenweight reproduce table-3" in " ".join(note.text for note in report.notes)


def config(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "protocol": {"metric": "recall", "first_line": "lceg"},
        "evaluation": {"mmlu": {"data": "sha256:abc"}},
    }
    return {"config": base | changes}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (
            config(protocol={"metric": "recall", "first_line": "thudm"}),
            'mmlu/anatomy: protocol.first_line differs (uniform: "lceg"; frozen-sparse: "thudm")',
        ),
        (config(evaluation={"mmlu": {"data": "sha256:xyz"}}), "mmlu/anatomy: data digest.mmlu.data differs"),
        ({"versions": {"lm-eval": "0.5.0"}}, "harness version lm-eval differs"),
        (
            {"stage_version": 2},
            "code: stage version differs (uniform, mmlu/anatomy: 1; frozen-sparse, mmlu/anatomy: 2)",
        ),
    ],
)
def test_two_protocols_never_share_a_column(store: FakeStore, record: dict[str, Any], reason: str) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0, 1.0])
    store.add("frozen-sparse", "mmlu/anatomy", [1.0, 1.0], record=record)
    report = build_report(store.manifest(), store.root)
    for row in ("uniform", "frozen-sparse"):
        assert report.cell(row, "mmlu").status == "refused"
        assert reason in note_texts(report, row, "mmlu")[0]
    assert report.cell("lcde", "mmlu").status == "missing"


def test_other_questions_under_one_name_are_refused(store: FakeStore) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0, 1.0])
    store.add("frozen-sparse", "mmlu/anatomy", [1.0, 1.0], doc_ids=[0, 7])
    report = build_report(store.manifest(), store.root)
    assert "questions asked differs" in note_texts(report, "uniform", "mmlu")[0]


def test_no_bold_where_a_competitor_has_no_value(full_store: FakeStore) -> None:
    manifest = full_store.manifest()
    without = manifest.model_copy(update={"rows": tuple(row for row in manifest.rows if row.row != "lcde")})
    report = build_report(without, full_store.root)
    assert not [cell for row in report.rows for cell in row.cells if "bold" in cell.emphasis]
    note = next(note.text for note in report.notes if note.text.startswith("Not judged for bold"))
    assert note.endswith("for want of a complete value in LCDE.")


def test_bold_goes_to_the_largest_and_italics_do_not_compete(store: FakeStore) -> None:
    def scores(row: str, benchmark: str, task: str, length: int | None) -> list[float]:
        return {"no-train-8k": [1.0, 1.0], "lcde": [0.0, 1.0], "uniform": [1.0, 0.0]}.get(row, [0.0, 0.0])

    store.fill(scores=scores, n_expected=2)
    report = build_report(store.manifest(), store.root)
    assert [row.key for row in report.rows if "bold" in report.cell(row.key, "mmlu").emphasis] == ["lcde", "uniform"]
    assert report.cell("no-train-8k", "mmlu").emphasis == ("italic",)
    assert report.cell("no-train-8k", "longbench").emphasis == ("bold",)


def test_intervals_hold_the_value_and_repeat(full_store: FakeStore) -> None:
    report = build_report(full_store.manifest(), full_store.root)
    assert report == build_report(full_store.manifest(), full_store.root)
    for row in report.rows:
        for cell in row.cells:
            if cell.value is not None:
                assert cell.ci_low is not None
                assert cell.ci_high is not None
                assert cell.ci_low <= cell.value <= cell.ci_high


def test_interval_of_a_proportion_has_the_binomial_width(store: FakeStore) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0, 1.0] * 200)
    cell = build_report(store.manifest(), store.root).cell("uniform", "mmlu")
    half_width = 1.96 * 100 * np.sqrt(0.25 / 400)
    assert cell.ci_low == pytest.approx(50 - half_width, abs=0.7)
    assert cell.ci_high == pytest.approx(50 + half_width, abs=0.7)


def test_single_samples_give_no_interval(store: FakeStore) -> None:
    for task in RULER_TASKS:
        store.add("uniform", f"ruler/{task}/1024", [1.0])
    cell = build_report(store.manifest(), store.root).cell("uniform", "ruler-1k")
    assert (cell.value, cell.ci_low, cell.ci_high) == (100.0, None, None)


def test_equal_models_differ_by_exactly_nothing(store: FakeStore) -> None:
    rng = np.random.default_rng(1)
    scores = {unit: rng.random(4).tolist() for unit in all_units(short_context=False)}
    for row in ("uniform", "lambda-0.25"):
        for (benchmark, task, length), values in scores.items():
            store.add(row, "/".join(filter(None, (benchmark, task, str(length or "")))), values)
    report = build_report(store.manifest("figure-1"), store.root)
    for column in ("mmlu-difference", "ruler-difference", "longbench-difference"):
        cell = report.cell("lambda-0.25", column)
        assert (cell.value, cell.ci_low, cell.ci_high, cell.n) == (0.0, 0.0, 0.0, report.cell("uniform", column).n)
    assert report.cell("lambda-0.25", "mmlu-difference").paper is not None
    assert report.cell("lambda-0.50", "mmlu-difference").status == "missing"


def test_correlation_needs_all_rows(full_store: FakeStore) -> None:
    manifest = full_store.shown_in("table-10")
    whole = build_report(manifest, full_store.root)
    assert [round(s.value or 9, 2) for s in whole.statistics] != [9, 9]
    assert whole.statistics[0].paper == "0.9289"
    cut = build_report(manifest.model_copy(update={"rows": manifest.rows[1:]}), full_store.root)
    assert [(s.value, s.n) for s in cut.statistics] == [(None, 7), (None, 7)]


def test_flags_of_the_evaluation_reach_the_table(store: FakeStore) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0, 0.0], flags=["all scores zero"])
    store.add("uniform", "bbh/navigate", [0.0, 0.0], flags=["not of this table"])
    texts = [note.text for note in build_report(store.manifest(), store.root).notes]
    assert "Flagged all scores zero: 1 unit, mmlu/anatomy (Uniform)." in texts
    assert not any("not of this table" in text for text in texts)


def test_manifest_mistakes_are_one_line(full_store: FakeStore, tmp_path: Path) -> None:
    values = full_store.manifest().model_dump(mode="json")
    wrong = [
        ({"rows": [values["rows"][0] | {"row": "dense"}]}, "'dense': table-3 has no such row"),
        ({"rows": [values["rows"][0], values["rows"][0]]}, "given twice"),
        ({"rows": [values["rows"][0] | {"recipe": "table-3/lcde"}]}, "no such row of 'table-3/lcde'"),
    ]
    for change, text in wrong:
        path = tmp_path / "manifest.json"
        path.write_text(json.dumps(values | change))
        with pytest.raises(UserError, match=text):
            read_manifest(path)


def test_manifest_survives_json(full_store: FakeStore) -> None:
    manifest = full_store.manifest()
    assert Manifest.model_validate(json.loads(manifest.model_dump_json())) == manifest
    with pytest.raises(ValueError, match="extra"):
        Manifest.model_validate(manifest.model_dump() | {"unknown": 1})
