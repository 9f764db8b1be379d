"""Differences to the baseline, from a store to every format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reports_fake_store import AT, LENGTHS, RULER_TASKS, FakeStore, all_units, manifest_of
from scipy import stats

from tokenweight.pipeline.experiment import Experiment, Row
from tokenweight.pipeline.manifest import Manifest, RowEntry
from tokenweight.reports import delimited, latex, markdown
from tokenweight.reports.build import build_report
from tokenweight.reports.display import difference_text, words
from tokenweight.reports.model import Cell, CellDifference, FindingResult, Report, ReportColumn
from tokenweight.reports.samples import read_unit
from tokenweight.reports.targets import TARGETS, get_target
from tokenweight.reports.targets.columns import usual_columns


def difference(report: Report, row: str, column: str) -> CellDifference:
    found = report.cell(row, column).difference
    assert found is not None
    return found


def mmlu_report(store: FakeStore, uniform: list[float], sparse: list[float], target: str = "table-3") -> Report:
    store.add("uniform", "mmlu/anatomy", uniform)
    store.add("frozen-sparse", "mmlu/anatomy", sparse)
    return build_report(store.manifest(target), store.root)


def test_an_accuracy_is_tested_on_its_samples(store: FakeStore) -> None:
    report = mmlu_report(store, [0.0] * 7 + [1.0] * 13, [1.0] * 6 + [0.0] * 2 + [1.0] * 12)
    found = difference(report, "frozen-sparse", "mmlu")
    assert (found.baseline, found.test, found.n) == ("uniform", "t over samples", 20)
    assert found.value == pytest.approx(100 * 5 / 20)
    differences = [1.0] * 6 + [0.0] + [-1.0] + [0.0] * 12
    assert found.p == found.p_corrected  # the table's only test
    assert found.p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, rel=0.2)  # as far as the draws tell
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert found.ci_low < 0 < 25 < found.ci_high  # p is above 0.05
    assert report.cell("uniform", "mmlu").difference is None
    assert report.comparisons == 1


def test_a_mean_over_tasks_is_tested_within_tasks(store: FakeStore) -> None:
    for i, task in enumerate(RULER_TASKS):
        store.add("uniform", f"ruler/{task}/1024", [0.5, 0.5])
        store.add("frozen-sparse", f"ruler/{task}/1024", [1.0, 0.5] if i < 3 else [0.5, 0.5])
    report = build_report(store.manifest(), store.root)
    found = difference(report, "frozen-sparse", "ruler-1k")
    assert (found.test, found.n) == ("t over samples", 26)
    assert found.value == pytest.approx(100 * 3 * 0.25 / 13)
    error = 100 * np.sqrt(3 * 0.25**2) / 13  # of each of three tasks' means: half the difference of its two samples
    assert found.p == pytest.approx(2 * stats.t.sf(found.value / error, 13), rel=0.15)


def test_equal_models_have_p_1_and_an_interval_of_nothing(store: FakeStore) -> None:
    rng = np.random.default_rng(1)
    scores = {unit: rng.random(5).tolist() for unit in all_units(short_context=False)}
    for row in ("uniform", "frozen-sparse", "frozen-dense"):
        for (benchmark, task, length), values in scores.items():
            unit = "/".join(filter(None, (benchmark, task, str(length or ""))))
            store.add(row, unit, values, tokens=[1, 2, 3, 4000, 5000] if benchmark == "longbench" else None)
    for target in ("table-3", "table-8", "table-9"):
        report = build_report(store.manifest(target), store.root)
        assert report.comparisons == 2 * len(report.columns)
        for row in ("frozen-sparse", "frozen-dense"):
            for column in report.columns:
                found = difference(report, row, column.key)
                assert (found.value, found.ci_low, found.ci_high, found.p, found.p_corrected) == (0, 0, 0, 1, 1)


def test_equal_models_at_chance_are_not_tested(store: FakeStore) -> None:
    for row in get_target("table-3").rows:
        store.add(row.key, "mmlu/anatomy", [0.0, 1.0, 0.0, 0.0] * 2)
    report = build_report(store.manifest(), store.root)
    found = difference(report, "frozen-sparse", "mmlu")
    assert (found.value, found.p, report.comparisons) == (0, None, 0)
    assert found.reason == "not tested: at chance or at the floor in every row, it cannot be measured here"


def test_p_is_corrected_over_the_whole_table(store: FakeStore) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0] * 12)
    store.add("frozen-sparse", "mmlu/anatomy", [1.0] * 8 + [0.0] * 4)
    store.add("frozen-dense", "mmlu/anatomy", [1.0] * 11 + [0.0])
    store.add("uniform", "bbh/navigate", [0.0] * 7 + [1.0] * 5)
    store.add("frozen-sparse", "bbh/navigate", [1.0, 1.0] + [0.0] * 5 + [1.0] * 5)
    report = build_report(store.manifest("table-10"), store.root)
    found = [
        difference(report, *place)
        for place in (("frozen-dense", "mmlu"), ("frozen-sparse", "mmlu"), ("frozen-sparse", "bbh"))
    ]
    dense, sparse, bbh = (float(one.p or 0) for one in found)
    assert dense < sparse < bbh
    assert [one.p_corrected for one in found] == pytest.approx([3 * dense, 2 * sparse, bbh])


def test_perplexity_is_tested_as_it_is(store: FakeStore) -> None:
    for length in LENGTHS:
        store.add("uniform", f"perplexity/validation/{length}", [1.0, 2.0, 3.0])
        store.add("frozen-sparse", f"perplexity/validation/{length}", [1.5, 2.5, 3.25])
    report = build_report(store.manifest("table-9"), store.root)
    found = difference(report, "frozen-sparse", "perplexity-2k")
    assert found.value == pytest.approx(np.exp(7.25 / 3) - np.exp(2.0))
    assert found.n == 3
    assert found.p is not None
    assert found.ci_low is not None
    assert found.ci_low < 0
    assert found.p > 0.05  # three texts


def test_no_interval_where_resampling_changes_nothing(store: FakeStore) -> None:
    report = mmlu_report(store, [0.0, 0.0], [1.0, 1.0])
    cell = report.cell("frozen-sparse", "mmlu")
    assert (cell.value, cell.ci_low, cell.ci_high) == (100.0, None, None)
    found = difference(report, "frozen-sparse", "mmlu")
    assert (found.value, found.ci_low, found.ci_high, found.p) == (100.0, None, None, None)
    text = markdown.render(report)
    assert "| Frozen | Sparse | — n 2 |" in text
    assert "| Frozen | Sparse | +100.00 (not tested) |" in text
    assert "Not tested: every sample and seed has the same difference." in text
    assert "A task has only 2 samples" in text
    assert "all samples of each task have the same score" in text


def test_a_difference_column_is_tested_against_its_own_reference(store: FakeStore) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0, 1.0, 0.0, 1.0] * 8)
    store.add("lambda-0.25", "mmlu/anatomy", [1.0, 1.0, 1.0, 0.0] * 8)
    report = build_report(store.manifest("figure-1"), store.root)
    cell = report.cell("lambda-0.25", "mmlu-difference")
    found = difference(report, "lambda-0.25", "mmlu-difference")
    assert (found.baseline, found.value) == ("uniform", cell.value)
    assert (found.ci_low, found.ci_high) == (cell.ci_low, cell.ci_high)
    assert report.cell("uniform", "mmlu-difference").difference is None  # itself
    assert report.comparisons == 1


@pytest.mark.parametrize("changed", [{"doc_ids": [0, 7]}, {"reference": '["other"]'}])
def test_other_samples_are_not_tested(store: FakeStore, changed: dict[str, Any]) -> None:
    store.add("a", "mmlu/anatomy", [0.0, 1.0])
    store.add("b", "mmlu/anatomy", [1.0, 1.0], **changed)
    rows = tuple(RowEntry(row=row, recipe=f"evaluate/{row}", units=tuple(store.entries[row])) for row in ("a", "b"))
    experiment = Experiment(
        name="evaluation",
        title="Two models",
        rows=tuple(Row(key=row, label=row, recipe=f"evaluate/{row}") for row in ("a", "b")),
        columns=usual_columns(["mmlu"], AT, brief=False),
        baseline="a",
        same_questions=False,
    )
    report = build_report(manifest_of(experiment, rows), store.root)
    found = difference(report, "b", "mmlu")
    assert (found.baseline, found.value, found.p, found.ci_low) == ("a", 50.0, None, None)
    assert "+50.00 (not tested)" in markdown.render(report)
    assert "Not tested: it rests on other samples than the baseline." in markdown.render(report)
    assert "other samples than the baseline" in delimited.render(report)


def test_perplexity_of_other_token_ids_is_other_questions(store: FakeStore) -> None:
    unit = f"perplexity/validation/{LENGTHS[0]}"
    store.add("a", unit, [1.0, 2.0])
    store.add("b", unit, [1.0, 2.0], prompt_sha256="1")
    store.add("a", "mmlu/anatomy", [1.0, 2.0], tokens=[9, 9])
    store.add("b", "mmlu/anatomy", [1.0, 2.0], tokens=[9, 9], prompt_sha256="1")  # a prompt that is cut elsewhere
    first, second = ([read_unit(entry, store.root).questions for entry in store.entries[row]] for row in "ab")
    assert [a == b for a, b in zip(first, second, strict=True)] == [False, True]


def test_baselines_are_rows_of_their_targets() -> None:
    without = [name for name in TARGETS if get_target(name).baseline is None]
    assert without == ["table-1", "figure-3"]  # one model each
    for target in map(get_target, TARGETS):
        assert target.baseline in {None} | {row.key for row in target.rows}
        assert {row.reference for row in target.rows if row.reference} <= {row.key for row in target.rows}


def seeded_manifest(root: Path, sparse_by_seed: list[list[float]]) -> Manifest:
    """MMLU of the baseline, the same with each seed, and of another row."""
    rows = []
    for seed, scores in enumerate(sparse_by_seed):
        for row, values in (("uniform", [0.0, 1.0] * 10), ("frozen-sparse", scores)):
            store = FakeStore(root)
            store.add(f"{row}-{seed}", "mmlu/anatomy", values)
            units = tuple(store.entries[f"{row}-{seed}"])
            recipe = next(r.recipe for r in get_target("table-10").rows if r.key == row)
            rows.append(RowEntry(row=row, recipe=recipe, seed=seed, units=units))
    return manifest_of("table-10", rows)


def test_several_seeds_must_agree(tmp_path: Path) -> None:
    better = [1.0, 1.0] * 9 + [0.0, 1.0]
    worse = [0.0, 0.0] * 2 + [0.0, 1.0] * 8
    agreeing = seeded_manifest(tmp_path / "a", [better, [1.0, 1.0] * 10, better])
    found = difference(build_report(agreeing, tmp_path / "a"), "frozen-sparse", "mmlu")
    assert found.test == "t over seeds and samples"
    assert found.n == 20
    assert found.value == pytest.approx(100 * (9 + 10 + 9) / 60)
    assert found.p is not None
    assert found.p < 0.01
    differing = seeded_manifest(tmp_path / "b", [better, better, worse])
    found = difference(build_report(differing, tmp_path / "b"), "frozen-sparse", "mmlu")
    assert found.p is not None
    assert found.p > 0.2  # over samples alone it would be small
    assert found.ci_low is not None
    assert found.ci_low < 0


def test_differences_reach_every_format(store: FakeStore) -> None:
    report = mmlu_report(store, [0.0] * 12 + [1.0] * 8, [1.0] * 19 + [0.0])
    text = markdown.render(report)
    found = difference(report, "frozen-sparse", "mmlu")
    assert "### Differences to Uniform" in text
    assert f"**+55.00 \\[+{found.ci_low:.2f}, +{found.ci_high:.2f}\\], p \\<0.001**" in text
    assert "the 1 tests of this table" in text
    assert "Of other runs one seed tells nothing" in text
    tex = latex.render(report)
    assert r"95.00\textsuperscript{$\dagger$}" in tex
    assert r"\textsuperscript{$\dagger$}differs from Uniform with a corrected p below 0.05." in tex
    lines = {(line["row"], line["column"]): line for line in csv.DictReader(io.StringIO(delimited.render(report)))}
    line = lines["frozen-sparse", "mmlu"]
    assert (line["baseline"], line["difference"], line["test"], line["pairs"]) == (
        "uniform",
        "55.000000",
        "t over samples",
        "20",
    )
    assert float(line["p_corrected"]) == pytest.approx(found.p_corrected, rel=0.01)
    assert lines["uniform", "mmlu"]["difference"] == ""
    stored = json.loads(report.model_dump_json())["rows"][6]["cells"][0]["difference"]
    assert stored["p"] == found.p


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.003, 0.0004, 0.0049, "+0.0030 [+0.0004, +0.0049]"),
        (-0.003, -0.0057, -0.0003, "-0.0030 [-0.0057, -0.0003]"),
        (0.0, -0.003, 0.003, "0.0000 [-0.0030, +0.0030]"),
        (0.003, -0.02, 0.03, "0.00 [-0.02, +0.03]"),
        (0.2, 0.004, 0.4, "+0.20 [0.00, +0.40]"),
        (0.0, 0.0, 0.0, "0.00 [0.00, 0.00]"),
    ],
)
def test_a_difference_that_is_not_zero_is_not_printed_as_zero(value: float, low: float, high: float, text: str) -> None:
    of = {"value": value, "ci_low": low, "ci_high": high}
    found = CellDifference(baseline="uniform", baseline_label="Uniform", p=0.03, p_corrected=0.03, **of)
    column = ReportColumn(key="perplexity", label="", decimals=2)
    assert difference_text(Cell(status="complete", difference=found), column) == f"{text}, p 0.030"
    finding = FindingResult(claim="A", place="B", compared="C", decimals=2, seeds_holding=1, seeds=1, difference=value)
    assert text.partition(" ")[0].lstrip("+-") in words("finding", finding.model_copy(update=of))


def test_the_caption_says_what_stands_out(full_store: FakeStore) -> None:
    names = ("table-3", "table-4", "table-5", "table-9", "table-11")
    said = {name: build_report(full_store.shown_in(name), full_store.root).emphasis for name in names}
    assert said == {
        "table-3": "Bold: largest of a column; italic: not considered for bold (MMLU full of No-train 1k)",
        "table-4": "Bold: largest of a column; italic: smallest of a column",
        "table-5": "Underlined: larger than Baseline",
        "table-9": "Bold: smallest of a column",
        "table-11": "",
    }
