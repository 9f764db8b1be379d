"""Figure 3 from what an evaluation stored: its density is scipy's, its shares are exact, its files are there."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reports_fake_store import AT, manifest_of, seal

from tokenweight.pipeline.manifest import Manifest, RowEntry, UnitEntry
from tokenweight.pipeline.measures import Pmi
from tokenweight.reports.build import build_report
from tokenweight.reports.files import figures_of, write_figures
from tokenweight.reports.model import Report
from tokenweight.reports.pmi import (
    density,
    quantile,
    read_distribution,
    scores,
    scott_bandwidth,
    selected,
    statistic,
)
from tokenweight.reports.samples import read_unit, units_of
from tokenweight.reports.targets import get_target
from tokenweight.reports.targets.labels import experiment_at

TARGET = experiment_at(get_target("figure-3"), AT)
CHUNK_TOKENS, FIRST = 4000, 1000
ENTRY = UnitEntry(
    unit="pmi/validation", benchmark="pmi", task="validation", address="evaluate/uniform", fingerprint="f"
)
VARIANTS = ("abs_pmi", "ppmi", "npmi", "sppmi", "snpmi")


def manifest(*units: UnitEntry) -> Manifest:
    row = RowEntry(row="uniform", recipe="table-3/uniform", units=units)
    return manifest_of("figure-3", [row])


def tally(pmi: np.ndarray) -> dict[str, Any]:
    return {
        "tokens": len(pmi), "sum": float(pmi.sum()), "squares": float((pmi**2).sum()),
        "min": float(pmi.min()), "max": float(pmi.max()), "near_zero": int((np.abs(pmi) < 0.05).sum()),
        "zero": {name: int((scores(name, pmi, 2.0) == 0).sum()) for name in VARIANTS},
    }  # fmt: skip


@pytest.fixture(scope="module")
def pmi() -> np.ndarray:
    """PMI of six chunks of three documents; the first tokens of each chunk have no far context, and a PMI of 0."""
    draw = np.random.default_rng(3)
    values = draw.laplace(0.02, 0.4, (6, CHUNK_TOKENS)) + (draw.random((6, CHUNK_TOKENS)) < 0.03) * 4
    values[:, :FIRST] = 0
    return values


@pytest.fixture(scope="module")
def root(pmi: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    directory = root / ENTRY.address
    directory.mkdir(parents=True)
    told = [
        {"document": i // 2, "first_token": 0, "first_window": tally(row[:FIRST]), "far_context": tally(row[FIRST:])}
        for i, row in enumerate(pmi)
    ]
    n = len(pmi)
    columns = {
        "doc_id": pa.array(range(n), pa.int64()), "untruncated_tokens": pa.array([None] * n, pa.int64()),
        "length_words": pa.array([None] * n, pa.int64()), "reference": ["[]"] * n, "metric": ["pmi"] * n,
        "prompt_sha256": ["s"] * n,
        "score": pmi.mean(1), "tolerant_score": pa.array([None] * n, pa.float64()),
        "output": [json.dumps(chunk) for chunk in told],
    }  # fmt: skip
    pq.write_table(pa.table(columns), directory / "rows.parquet")
    edges = np.arange(-16 * 256, 16 * 256 + 1) / 256
    bins = np.concatenate([[-math.inf], edges, [math.inf]])
    counts = {
        "first_window": np.histogram(pmi[:, :FIRST], bins)[0],
        "far_context": np.histogram(pmi[:, FIRST:], bins)[0],
    }
    pq.write_table(pa.table({"low": bins[:-1], "high": bins[1:], **counts}), directory / "histogram.parquet")
    (directory / "summary.json").write_text(json.dumps({"n_expected": n, "flags": []}))
    evaluation = {"pmi": {"shift_k": 2.0}}
    seal(directory, {"fingerprint": "f", "stage_version": 1, "config": {"evaluation": evaluation}, "versions": {}})
    return root


@pytest.fixture(scope="module")
def report(root: Path) -> Report:
    return build_report(manifest(ENTRY), root)


def test_the_density_is_that_of_all_values(root: Path, pmi: np.ndarray) -> None:
    from scipy.stats import gaussian_kde

    distribution = read_distribution(read_unit(ENTRY, root))
    raw = gaussian_kde(pmi[:, FIRST:].ravel())
    bandwidth = scott_bandwidth(distribution, "far")
    assert bandwidth == pytest.approx(math.sqrt(raw.covariance[0, 0]), rel=1e-6)
    grid = np.linspace(-3, 6, 181)
    expected = raw(grid)
    ours = density(distribution, grid, bandwidth, "far")
    assert np.abs(ours - expected).max() < 2e-3 * expected.max()
    wide = np.linspace(-16, 16, 4001)
    assert np.trapezoid(density(distribution, wide, bandwidth, "all"), wide) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("tokens", [1, 5])
def test_where_nothing_varies_the_density_has_the_width_of_a_bin(tokens: int, root: Path) -> None:
    found = read_distribution(read_unit(ENTRY, root))
    bins = found.bins.assign(far_context=np.where(found.bins["low"] == 0.5, tokens, 0))
    named = {"tokens": tokens, "sum": 0.5 * tokens, "squares": 0.25 * tokens}
    documents = pd.DataFrame([{f"far_context.{name}": value for name, value in named.items()}])
    one = replace(found, bins=bins, documents=documents)
    width = scott_bandwidth(one, "far")
    grid = np.linspace(0, 1, 1001)
    assert width == 1 / 256
    assert np.trapezoid(density(one, grid, width, "far"), grid) == pytest.approx(1, abs=1e-3)


def test_cells_are_what_all_values_give(report: Report, pmi: np.ndarray) -> None:
    far, every = pmi[:, FIRST:].ravel(), pmi.ravel()

    def value(column: str) -> float:
        cell = report.cell("uniform", column)
        assert cell.status == "complete"
        assert cell.value is not None
        return cell.value

    assert value("pmi-mean") == pytest.approx(far.mean())
    assert value("pmi-positive") == pytest.approx(100 * (far > 0).mean())
    assert value("pmi-near-zero") == pytest.approx(100 * (np.abs(far) < 0.05).mean())
    assert value("pmi-zero-sppmi") == pytest.approx(100 * (far <= math.log(2)).mean())
    assert value("pmi-zero-snpmi-all") == pytest.approx(100 * (every >= -math.log(2)).mean())
    for percent in (5, 25, 50, 75, 95):
        assert value(f"pmi-q{percent}") == pytest.approx(np.quantile(far, percent / 100), abs=1 / 256)
    assert {report.cell("uniform", c.key).n for c in report.columns} == {far.size, every.size}
    mean = report.cell("uniform", "pmi-mean")
    assert mean.ci_low is not None
    assert mean.ci_high is not None
    assert mean.ci_low < far.mean() < mean.ci_high
    assert report.cell("uniform", "pmi-q50").ci_low is None  # documents have no histograms of their own
    assert any("75.0 % of 24000 tokens have a far context" in note.text for note in report.notes)


def test_scores_are_those_of_training() -> None:
    torch = pytest.importorskip("torch")
    from tokenweight.weighting.weights import token_scores

    pmi = np.linspace(-3, 3, 601)
    for name in VARIANTS:
        short = torch.from_numpy(pmi) + 5
        expected = token_scores(name, torch.full((601,), 5.0, dtype=torch.float64), short, shift_k=3.0).numpy()
        assert np.allclose(scores(name, pmi, 3.0), expected)


def test_a_document_too_short_for_far_context_does_not_spoil_the_interval(root: Path) -> None:
    whole = read_distribution(read_unit(ENTRY, root))
    mean = Pmi(benchmark="pmi", statistic="mean")
    with_short = replace(whole, documents=pd.concat([whole.documents, *[0 * whole.documents[:1]] * 6]))
    value, draws = statistic(mean, with_short)
    expected, expected_draws = statistic(mean, whole)
    assert value == expected
    assert draws is not None
    assert expected_draws is not None
    assert np.array_equal(draws, expected_draws)


def test_what_the_table_refuses_is_not_drawn(report: Report, root: Path, tmp_path: Path) -> None:
    (row,) = report.rows
    cells = tuple(cell.model_copy(update={"status": "refused", "value": None}) for cell in row.cells)
    refused = report.model_copy(update={"rows": (row.model_copy(update={"cells": cells}),)})
    files = write_figures(refused, manifest(ENTRY), root, tmp_path)
    assert len(files["curve.csv"].read_text().splitlines()) == 1
    assert "refused, the table" in files["svg"].read_text()


def test_what_each_variant_selects(root: Path, pmi: np.ndarray) -> None:
    distribution = read_distribution(read_unit(ENTRY, root))
    every, shift = pmi.ravel(), math.log(2)
    (positive,) = selected(distribution, "ppmi", 0.2)
    assert positive == (pytest.approx(np.quantile(every, 0.8), abs=2 / 256), math.inf)
    negative, upper = selected(distribution, "abs_pmi", 0.2)
    threshold = np.quantile(np.abs(every), 0.8)
    assert (negative[1], upper[0]) == (pytest.approx(-threshold, abs=2 / 256), pytest.approx(threshold, abs=2 / 256))
    (shifted,) = selected(distribution, "snpmi", 0.9)  # fewer have a score: all of them
    assert shifted == (-math.inf, pytest.approx(-shift, abs=1 / 256))


def test_the_files_are_there_and_vectors_are_vectors(report: Report, root: Path, tmp_path: Path) -> None:
    files = write_figures(report, manifest(ENTRY), root, tmp_path)
    assert set(files) == {"pdf", "svg", "png", "curve.csv"}
    pdf, svg, png = (files[kind].read_bytes() for kind in ("pdf", "svg", "png"))
    assert pdf.startswith(b"%PDF")
    assert b"/Subtype /Image" not in pdf
    assert b"<path" in svg
    assert b"<image" not in svg
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") > 800
    rows = list(csv.DictReader(files["curve.csv"].open()))
    grid, values = (np.array([float(row[key]) for row in rows]) for key in ("pmi_nats", "density_per_nat"))
    assert {row["model"] for row in rows} == {"Uniform"}
    assert 0.95 < np.trapezoid(values, grid) < 1
    again = write_figures(report, manifest(ENTRY), root, tmp_path / "again")
    assert [again[kind].read_bytes() for kind in ("pdf", "svg", "curve.csv")] == [
        pdf, svg, files["curve.csv"].read_bytes(),
    ]  # fmt: skip


def test_what_is_not_measured_is_said_in_the_figure_and_the_table(tmp_path: Path) -> None:
    described = manifest(ENTRY)
    report = build_report(described, tmp_path / "store")
    assert {cell.status for cell in report.rows[0].cells} == {"missing"}
    assert {cell.value for cell in report.rows[0].cells} == {None}
    drawing = figures_of(described)[""](report, described, tmp_path / "store")
    assert drawing.data_csv.splitlines() == ["model,bandwidth_nats,pmi_nats,density_per_nat"]
    (axes,) = drawing.figure.axes
    assert [text.get_text() for text in axes.texts] == ["Uniform: missing, the table's notes say why"]
    assert not axes.lines


@pytest.mark.parametrize("broken", ["histogram.parquet", "record.json"])
def test_a_broken_artifact_is_refused(broken: str, root: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(root, tmp_path / "store")
    (tmp_path / "store" / ENTRY.address / broken).write_bytes(b"?")
    report = build_report(manifest(ENTRY), tmp_path / "store")
    assert {cell.status for cell in report.rows[0].cells} == {"refused"}
    assert write_figures(report, manifest(ENTRY), tmp_path / "store", tmp_path)["pdf"].is_file()


def test_a_quantile_is_the_bin_that_the_share_ends_in(root: Path) -> None:
    distribution = read_distribution(read_unit(ENTRY, root))
    assert quantile(distribution, 0.5, "all") == pytest.approx(0, abs=1 / 256)
    assert units_of(Pmi(benchmark="pmi", statistic="mean"), [read_unit(ENTRY, root)])[0].entry == ENTRY


def test_matplotlib_is_loaded_only_where_a_figure_is_drawn() -> None:
    code = (
        "import sys, tokenweight.cli, tokenweight.tasks.experiments, tokenweight.reports.files\n"
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
