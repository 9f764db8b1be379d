"""The table and the figure of a sweep: rows and labels, what lacks and why, curves and points."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest

from tokenweight.pipeline.experiment import Column, Experiment, Figure, Lengths, Row
from tokenweight.pipeline.manifest import Manifest, with_failures
from tokenweight.pipeline.measures import SampleMean
from tokenweight.pipeline.store import Store
from tokenweight.reports.figures.panels import draw_sweep
from tokenweight.reports.figures.style import style
from tokenweight.reports.model import Cell, Report, ReportColumn, ReportRow
from tokenweight.reports.targets.find import find_experiments, sweep_experiment
from tokenweight.reports.targets.labels import labels_of
from tokenweight.reports.targets.members import members
from tokenweight.reports.targets.schema import ExperimentSpec
from tokenweight.reports.writing import write_results
from tokenweight.tasks.experiments import plan_experiment

SPARSE = "table-3/frozen-sparse"


def test_a_table_says_what_lacks_and_why(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    user = sweep_experiment(
        [SPARSE, "table-3/unfrozen-sparse"], ["weighting.kappa=0.4,1"], [], ("mmlu", "perplexity"), "kappas"
    )
    (resolved,) = find_experiments([user], "smoke")
    plan = plan_experiment(resolved, store)
    failed = {f"{SPARSE} kappa=0.4": "its disk is full"}
    report, files = write_results(with_failures(plan.manifest, failed), store.root, tmp_path / "out", figures=False)
    assert sorted(files) == ["csv", "json", "macros", "manifest", "md", "tex"]
    assert files["tex"].name == "kappas.tex"
    assert report.stub == ("recipe", "κ")
    assert [(row.group, row.label) for row in report.rows] == [
        (SPARSE, "κ = 0.4"), (SPARSE, "κ = 1"), ("table-3/unfrozen-sparse", "κ = 0.4"), ("table-3/unfrozen-sparse", "κ = 1"),
    ]  # fmt: skip
    assert {cell.status for row in report.rows for cell in row.cells} == {"missing"}
    assert all(cell.paper is None for row in report.rows for cell in row.cells)
    text = files["md"].read_text()
    assert "Failed in this run: table-3/frozen-sparse κ = 0.4: its disk is full." in text
    assert "The same run, made once: table-3/frozen-sparse κ = 1 and table-3/unfrozen-sparse κ = 1." in text
    command = (
        f"tokenweight sweep {SPARSE} table-3/unfrozen-sparse --over weighting.kappa=0.4,1 --measures mmlu,perplexity"
    )
    assert f"{command} --name kappas --scale smoke with this run's other options" in text


def test_labels_follow_the_fields() -> None:
    def labels(over: list[str], explicit: list[str]) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
        stub, labels = labels_of(members(sweep_experiment([SPARSE], over, explicit, ("mmlu",), None)))
        return stub, list(labels.values())

    assert labels(["weighting.score=ppmi,npmi"], []) == (("score",), [("", "score = ppmi"), ("", "score = npmi")])
    stub, rows = labels(["weighting.kappa=0.2,0.4", "seed=0", "training.steps=2"], [])
    assert stub == ("κ", "seed, steps")
    assert rows == [("κ = 0.2", "seed = 0, steps = 2"), ("κ = 0.4", "seed = 0, steps = 2")]
    stub, rows = labels([], ["weighting.kappa=0.2", "training.steps=2"])
    assert (stub, rows) == (("member",), [("", "κ = 0.2"), ("", "steps = 2")])
    labelled = {"label": "mine", "group": "sparse", "recipe": SPARSE, "over": {"weighting.kappa": [0.2, 0.4]}}
    found = members(ExperimentSpec(name="s", rows=[{"label": "uniform", "recipe": "table-3/uniform"}, labelled]))
    labels_there = [("", "uniform"), ("sparse", "mine kappa=0.2"), ("sparse", "mine kappa=0.4")]
    assert labels_of(found) == (("Group", "Model"), dict(zip((m.key for m in found), labels_there, strict=True)))


def report_of(values: dict[str, float | None]) -> Report:
    """One column with a value for each row; None is missing."""
    return Report(
        target="s",
        title="Sweep",
        paper_place="",
        scale="smoke",
        stub=("member",),
        columns=(
            ReportColumn(
                key="mmlu", label="MMLU", group="", decimals=2, signed=False, paper_column=None, paper_label=None
            ),
        ),
        rows=tuple(
            ReportRow(key=row, group="", label=row, paper_label=row, recipe=row, rule_below=None, cells=(cell(value),))
            for row, value in values.items()
        ),
        notes=(),
    )


def cell(value: float | None) -> Cell:
    if value is None:
        return Cell(status="missing")
    return Cell(status="complete", value=value, ci_low=value - 1, ci_high=value + 1, n=9)


def manifest_of(fields: dict[str, dict[str, Any]]) -> Manifest:
    experiment = Experiment(
        name="s",
        title="Sweep",
        rows=tuple(Row(key=row, label=row, recipe=row) for row in fields),
        columns=(Column(key="mmlu", label="MMLU", measure=SampleMean(benchmark="mmlu")),),
        figure=Figure(kind="sweep", values=fields, columns=("mmlu",)),
    )
    return Manifest(experiment=experiment, scale="smoke", lengths=Lengths(ruler=(1024,)), about="", command="", rows=())


def drawn(fields: dict[str, dict[str, Any]], values: dict[str, float | None]) -> Any:
    with style():
        return draw_sweep(report_of(values), manifest_of(fields), Path())


def test_a_number_is_an_axis_and_other_fields_are_series() -> None:
    fields = {f"{s}-{k}": {"score": s, "κ": k} for s in ("ppmi", "npmi") for k in (0.4, 0.2)}
    drawing = drawn(fields, {row: None if row == "npmi-0.2" else 10.0 * number for number, row in enumerate(fields, 1)})
    (axes,) = drawing.figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("κ (share of tokens)", "%")
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 2]
    assert [list(line.get_xdata()) for line in lines] == [[0.2, 0.4], [0.2, 0.4]]
    assert list(lines[0].get_ydata()) == [20, 10]
    assert [float(value) for value in lines[1].get_ydata()] == pytest.approx([math.nan, 30], nan_ok=True)
    assert [text.get_text() for text in drawing.figure.legends[0].get_texts()] == ["score = ppmi", "score = npmi"]
    assert "Left out" in drawing.figure.get_supxlabel()
    rows = list(csv.DictReader(io.StringIO(drawing.data_csv)))
    assert [(row["row"], row["ci_low"]) for row in rows] == [
        ("ppmi-0.4", "9.0"),
        ("ppmi-0.2", "19.0"),
        ("npmi-0.4", "29.0"),
    ]


def test_learning_rates_far_apart_are_on_a_logarithmic_axis() -> None:
    fields = {str(rate): {"learning rate": rate} for rate in (1e-6, 1e-5, 1e-4)}
    (axes,) = drawn(fields, dict.fromkeys(fields, 1.0)).figure.axes
    assert axes.get_xscale() == "log"


@pytest.mark.parametrize("values", [("frozen", "unfrozen"), (True, False), ([1], [2])])
def test_what_is_no_number_has_points(values: tuple[Any, Any]) -> None:
    fields = {f"{value}-{seed}": {"scorer": value, "seed": str(seed)} for value in values for seed in (0, 1)}
    heights = {row: float(number) for number, row in enumerate(fields, 1)}
    (axes,) = drawn(fields, heights).figure.axes
    assert sorted(y for line in axes.lines for y in line.get_ydata()) == [1, 2, 3, 4]
    assert len(axes.get_xticklabels()) == 2
