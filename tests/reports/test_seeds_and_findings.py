"""Several seeds in one cell, and the paper's findings counted over them."""

from __future__ import annotations

from csv import DictReader
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from reports_fake_store import FakeStore, manifest_of

from tokenweight.evaluation.planted import TASKS as PLANTED_TASKS
from tokenweight.pipeline.experiment import Lengths
from tokenweight.pipeline.manifest import Manifest, RowEntry
from tokenweight.reports import delimited, latex, markdown
from tokenweight.reports.build import build_report
from tokenweight.reports.comparisons import Results, judge
from tokenweight.reports.display import finding_texts
from tokenweight.reports.estimates import Estimate, Measured, Reason, mean_of_seeds
from tokenweight.reports.model import FindingResult, Report
from tokenweight.reports.targets import get_target
from tokenweight.reports.targets.labels import experiment_at

TARGET = get_target("planted")
DISTANCES = (1024, 2048)
# NLL of the first sequence by row; every seed adds 0.1, the second sequence 1.
LEVEL = {row.key: 1.0 + i / 10 for i, row in enumerate(TARGET.rows)}


def filled(root: Path, seeds: int, *without: tuple[str, int]) -> Manifest:
    """All rows and seeds; the model without training is one artifact whatever the seed."""
    rows = []
    for seed in range(seeds):
        for row in TARGET.rows:
            store = FakeStore(root)
            name = row.key if row.key == "no-train-32k" else f"{row.key}-{seed}"
            for task in PLANTED_TASKS:
                for distance in DISTANCES if task == "recall" else (None,):
                    level = LEVEL[row.key] + (0.1 * seed if name != row.key else 0)
                    scores = [0.5, 1.0] if task == "recall" else [level, level + 1]
                    unit = "/".join(str(part) for part in ("planted", task, distance) if part)
                    if not (root / "evaluate").exists() or name != row.key or seed == 0:
                        store.add(name, unit, None if (row.key, seed) in without else scores, n_expected=2)
                    else:
                        store.add(name, unit, None, n_expected=2)
            rows.append(RowEntry(row=row.key, recipe=row.recipe, seed=seed, units=tuple(store.entries[name])))
    return manifest_of("planted", rows, Lengths(ruler=(1024, 2048), planted=DISTANCES, longbench_split=1024))


def report_of(root: Path, seeds: int, *without: tuple[str, int]) -> Report:
    return build_report(filled(root, seeds, *without), root)


def test_a_cell_of_several_seeds_is_their_mean_with_its_spread(tmp_path: Path) -> None:
    report = report_of(tmp_path, 3)
    assert report.seeds == 3
    cell = report.cell("uniform", "nll")
    assert cell.value == pytest.approx(LEVEL["uniform"] + 0.5 + 0.1)
    assert cell.spread == pytest.approx(0.1)
    assert (cell.n, cell.n_expected) == (2, 2)
    assert len(cell.addresses) == 3
    assert report.cell("uniform", "recall-2k").value == pytest.approx(75.0)
    untrained = report.cell("no-train-32k", "nll")
    assert (untrained.value, untrained.spread) == (pytest.approx(LEVEL["no-train-32k"] + 0.5), None)


def test_one_seed_looks_as_before(tmp_path: Path) -> None:
    report = report_of(tmp_path, 1)
    assert report.cell("uniform", "nll").spread is None
    assert "±" not in markdown.render(report)


def test_an_absent_seed_makes_the_cell_absent(tmp_path: Path) -> None:
    report = report_of(tmp_path, 3, ("ppmi", 2))
    cell = report.cell("ppmi", "nll")
    assert (cell.status, cell.value, cell.spread) == ("missing", None, None)
    assert "Frozen Sparse PPMI, seed 2" in " ".join(note.text for note in report.notes)
    assert report.cell("npmi", "nll").value is not None
    ppmi = next(f for f in report.findings if "PPMI > Unfrozen Sparse" in f.compared)
    assert (ppmi.seeds, ppmi.seeds_holding, ppmi.difference) == (2, 2, None)
    assert "Not measured with every seed" in " ".join(finding_texts(report))


def test_what_is_wrong_with_several_seeds_alike_is_one_note(tmp_path: Path) -> None:
    report = report_of(tmp_path, 3, ("ppmi", 1), ("ppmi", 2))
    marks = report.cell("ppmi", "nll").marks
    assert len(marks) == 1
    (note,) = (note.text for note in report.notes if note.mark == marks[0])
    assert "Frozen Sparse PPMI, seed 1, Frozen Sparse PPMI, seed 2" in note


def test_what_is_wrong_with_one_seed_is_not_lost() -> None:
    absent = Estimate("missing", reasons=(Reason("seed 0", "not in the store"),))
    stale = Estimate("refused", reasons=(Reason("seed 1", "stale"),))
    both = mean_of_seeds(Measured({("a", 0): stale, ("a", 1): absent})).cells["a"]
    assert both.status == "refused"
    assert [reason.text for reason in both.reasons] == ["stale", "not in the store"]


def test_the_samples_of_an_incomplete_cell_are_those_of_its_incomplete_seed() -> None:
    whole = Estimate("complete", 1.0, n=8, n_expected=8, addresses=("a",))
    cut = Estimate("partial", n=3, n_expected=8, addresses=("b",))
    both = mean_of_seeds(Measured({("a", 0): whole, ("a", 1): cut})).cells["a"]
    assert (both.n, both.status) == (3, "partial")


def test_findings_are_counted_over_the_seeds(tmp_path: Path) -> None:
    report = report_of(tmp_path, 3)
    found = {finding.compared: finding for finding in report.findings}
    shows = found["NLL short context: Frozen Sparse PPMI > Unfrozen Sparse"]
    assert (shows.seeds_holding, shows.seeds) == (3, 3)
    assert shows.difference == pytest.approx(LEVEL["ppmi"] - LEVEL["unfrozen-sparse"])
    against = found["NLL short context: Uniform > Frozen Sparse NPMI"]
    assert (against.seeds_holding, against.seeds) == (0, 3)
    alike = found["NLL short context: Frozen Sparse abs(PMI) ≈ (within 0.01) Uniform"]
    assert (alike.seeds_holding, alike.difference) == (0, pytest.approx(0.3))
    texts = " ".join(finding_texts(report))
    assert alike.p is None  # every sample and seed has the same difference
    assert "Points that way, not significant (3 of 3 seeds)" in texts
    assert "Does not appear (0 of 3 seeds)" in texts


@pytest.mark.parametrize("name", ["planted", "table-3", "table-4", "table-9"])
def test_all_findings_name_rows_and_columns_of_the_target(name: str) -> None:
    target = experiment_at(get_target(name), Lengths(ruler=(1024, 2048, 3072, 4096), planted=DISTANCES))
    columns = {column.paper or column.key for column in target.columns}
    rows = {row.key for row in target.rows}
    assert target.findings
    for finding in target.findings:
        assert finding.column in columns
        assert {finding.higher, finding.lower} <= rows
    assert len({(finding.claim, finding.column) for finding in target.findings}) == len(target.findings)


def result(**changes: object) -> FindingResult:
    found = FindingResult(claim="A", place="B", compared="C", difference=1.0, decimals=1, seeds_holding=3, seeds=3)
    return found.model_copy(update=changes)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (result(p_corrected=0.01), "Appears"),
        (result(p_corrected=0.2), "Points that way"),
        (result(), "Points that way"),  # not the same samples: not tested
        (result(is_measurable=False, p_corrected=0.01), "Cannot be measured here"),
        (result(seeds_holding=2, p_corrected=0.01), "Undecided"),
        (result(seeds_holding=0, p_corrected=0.01), "Does not appear"),
        (result(difference=None, seeds=0, seeds_holding=0), "Not measured"),
    ],
)
def test_the_verdict_needs_every_seed_and_the_test(found: FindingResult, verdict: str, tmp_path: Path) -> None:
    report = report_of(tmp_path, 1).model_copy(update={"findings": (found,)})
    assert f"A (B). {verdict}" in finding_texts(report)[0]


def test_a_finding_about_a_length_that_was_left_out_is_left_out() -> None:
    target = experiment_at(get_target("table-9"), Lengths(ruler=(1024,))).model_copy(update={"columns": ()})
    assert judge(Results(target, {}, [0, 1])) == ()


def test_rows_with_equal_scores_are_alike(tmp_path: Path) -> None:
    manifest = filled(tmp_path, 3)
    same = {row.seed: row.units for row in manifest.rows if row.row == "uniform"}
    rows = (
        row.model_copy(update={"units": same[row.seed]}) if row.row == "frozen-sparse" else row for row in manifest.rows
    )
    report = build_report(manifest.model_copy(update={"rows": tuple(rows)}), tmp_path)
    alike = next(one for one in report.findings if "Frozen Sparse abs(PMI) ≈" in one.compared)
    assert (alike.difference, alike.p, alike.p_corrected, alike.seeds_holding) == (0.0, 0.0, 0.0, 3)


def test_one_seed_shows_no_finding(tmp_path: Path) -> None:
    assert report_of(tmp_path, 1).findings == ()


def test_renderers_show_spread_and_findings_and_no_part_of_the_paper(tmp_path: Path) -> None:
    report = report_of(tmp_path, 3)
    text, tex, csv = markdown.render(report), latex.render(report), delimited.render(report)
    assert text.startswith("## Weightings judged on the planted labels")
    assert "### Findings of the paper" in text
    value = report.cell("uniform", "nll").value
    assert f"{value:.3f} ± 0.100" in text
    assert f"{value:.3f} $\\pm$ 0.100" in tex
    assert "The paper, " not in tex
    rows = {(row["row"], row["column"], row["seed"]): row for row in DictReader(StringIO(csv))}
    assert np.isclose(float(rows["uniform", "nll", ""]["spread"]), 0.1)
    each = [float(rows["uniform", "nll", seed]["value"]) for seed in "012"]
    assert each == pytest.approx([value - 0.1, value, value + 0.1], abs=1e-6)
    assert report.cell("uniform", "nll").by_seed == pytest.approx(each, abs=1e-6)
