"""Figures plot the report's cells and the trainings' steps and nothing else; vector files, the same bytes each time."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reports_fake_store import AT, FakeStore, all_units, manifest_of

from tokenweight.errors import StageError
from tokenweight.pipeline.experiment import Experiment, Row
from tokenweight.pipeline.manifest import Manifest, RowEntry, StageEntry, keep_manifest, read_manifest, with_failures
from tokenweight.reports import files
from tokenweight.reports.build import build_report
from tokenweight.reports.figures.style import Drawing, style
from tokenweight.reports.figures.training import read_steps
from tokenweight.reports.files import figures_of, write_figures
from tokenweight.reports.model import Report
from tokenweight.reports.targets import get_target
from tokenweight.reports.targets.columns import usual_columns
from tokenweight.reports.writing import write_results

STEPS = 5


def drawn(report: Report, manifest: Manifest, root: Path, name: str) -> Drawing:
    with style():
        return figures_of(manifest)[name](report, manifest, root)


def rows_of(drawing: Drawing) -> list[dict[str, str]]:
    return list(csv.DictReader(drawing.data_csv.splitlines()))


def said(drawing: Drawing) -> str:
    return " ".join(drawing.figure.get_supxlabel().split())


def assert_equal_to_cells(drawing: Drawing, report: Report, columns: set[str], but: tuple[str, ...] = ()) -> None:
    """The CSV has all complete cells of these columns with their intervals, all of the paper's numbers, and no more."""
    ours, paper = {}, {}
    for row in report.rows:
        for column, cell in zip(report.columns, row.cells, strict=True):
            if column.key in columns and row.key not in but:
                if cell.status == "complete":
                    ours[row.key, column.key] = (cell.value, cell.ci_low, cell.ci_high)
                if cell.paper is not None and cell.paper.value is not None:
                    paper[row.key, column.key] = cell.paper.value
    plotted = rows_of(drawing)
    numbers = {
        (p["row"], p["column"]): tuple(float(p[k]) if p[k] else None for k in ("value", "ci_low", "ci_high"))
        for p in plotted
        if p["source"] == "this run"
    }
    assert numbers == ours
    assert {(p["row"], p["column"]): float(p["value"]) for p in plotted if p["source"] == "paper"} == paper


@pytest.fixture(scope="module")
def ablation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Manifest, Path]:
    """Figure 1 where lambda = 0.25 was not evaluated and MMLU of lambda = 0.50 is half there."""
    store = FakeStore(tmp_path_factory.mktemp("ablation"))
    for row in get_target("figure-1").rows:
        for benchmark, task, length in all_units(False):
            if benchmark in ("mmlu", "longbench", "ruler"):
                unit = "/".join(filter(None, (benchmark, task, str(length or ""))))
                half = row.key == "lambda-0.50" and benchmark == "mmlu"
                level = 0.1 + len(row.key + task) / 60
                scores = [0.0, 1.0, level, 0.4][: 2 if half else 4]
                store.add(row.key, unit, None if row.key == "lambda-0.25" else scores, n_expected=4)
    manifest = store.manifest("figure-1")
    return build_report(manifest, store.root), manifest, store.root


def test_ablation_curves_are_the_cells_and_gaps(ablation: tuple[Report, Manifest, Path]) -> None:
    report, manifest, root = ablation
    drawing = drawn(report, manifest, root, "")
    assert_equal_to_cells(drawing, report, {column.key for column in report.columns}, but=("uniform",))
    lines = {
        (axes.get_title() or f"the paper's {number % 3}", line.get_label()): [float(y) for y in line.get_ydata()]
        for number, axes in enumerate(drawing.figure.axes)
        for line in axes.lines
    }
    gaps = {key: [math.isnan(y) for y in ys] for key, ys in lines.items() if key[1] == "this run"}
    assert gaps == {
        ("MMLU", "this run"): [False, True, True, False],
        ("RULER", "this run"): [False, True, False, False],
        ("LongBench", "this run"): [False, True, False, False],
    }
    assert lines["the paper's 0", "the paper, Figure 1"] == [-2.71, -2.07, -1.08, -0.52]
    assert lines["RULER", "this run"][3] == report.cell("lambda-0.75", "ruler-difference").value
    assert "Left out: 4 of 15 values; the table's notes say why." in said(drawing)


def test_lengths_are_the_cells(full_store: FakeStore) -> None:
    manifest = full_store.manifest("table-3")
    report = build_report(manifest, full_store.root)
    drawing = drawn(report, manifest, full_store.root, "-lengths")
    assert_equal_to_cells(drawing, report, {"ruler-1k", "ruler-2k", "ruler-3k", "ruler-4k"})
    assert [axes.get_title("left") for axes in drawing.figure.axes][3:5] == ["Uniform", "Unfrozen Sparse"]
    assert "Left out" not in said(drawing)


def test_the_papers_values_have_an_axis_of_their_own_and_every_axis_a_unit(
    ablation: tuple[Report, Manifest, Path], full_store: FakeStore
) -> None:
    report, manifest, root = ablation
    ours, paper = (drawn(report, manifest, root, "").figure.axes[i] for i in (2, 5))
    (low, high), (paper_low, paper_high) = ours.get_ylim(), paper.get_ylim()
    assert paper_low / low == pytest.approx(paper_high / high)  # zero is at one height
    assert (paper.get_ylabel(), ours.get_xlabel()) == ("the paper, 8B (points)", "λ (share of uniform weight)")
    manifest = full_store.manifest("table-3")
    lengths = drawn(build_report(manifest, full_store.root), manifest, full_store.root, "-lengths").figure
    twins = lengths.axes[8:]
    assert len({twin.get_ylim() for twin in twins}) == 1
    assert twins[0].get_ylim() != lengths.axes[0].get_ylim()
    assert [axes.get_xlabel() for axes in lengths.axes[4:8]] == ["length (tokens)"] * 4
    assert {twin.get_ylabel() for twin in twins} == {"", "the paper, 8B (%)"}


def train(root: Path, row: str, *, steps: int = STEPS, fingerprint: str = "f", chunks: str = "novel") -> StageEntry:
    """A training of `STEPS` steps that wrote `steps` of them."""
    directory = root / "train" / row
    directory.mkdir(parents=True)
    lines = [
        {"step": n, "nll": 2 + len(row) / n, "weighted_nll": 1 / n, "learning_rate": 1e-4, "grad_norm": None}
        for n in range(1, steps + 1)
    ]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = {"training": {"steps": STEPS, "sequences_per_step": 2}, "seed": 0}
    record = {"fingerprint": fingerprint, "config": config, "inputs": {"chunks": chunks}, "outputs": {}}
    (directory / "record.json").write_text(json.dumps(record))
    return StageEntry(address=f"train/{row}", fingerprint="f")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Path]:
    """Table 8 without evaluations: one training on other chunks, a stale one, one that lost a step, one to come."""
    root = tmp_path_factory.mktemp("trained")
    entries: dict[str, Any] = {
        "lcde": train(root, "lcde", chunks="mixture"),
        "uniform": train(root, "uniform"),
        "unfrozen-sparse": train(root, "unfrozen-sparse"),
        "unfrozen-dense": train(root, "unfrozen-dense", fingerprint="other"),
        "frozen-sparse": train(root, "frozen-sparse", steps=STEPS - 1),
        "frozen-dense": StageEntry(address="train/frozen-dense", fingerprint="f"),
    }
    rows = tuple(
        RowEntry(row=row.key, recipe=row.recipe, units=(), train=entries.get(row.key))
        for row in get_target("table-8").rows
    )
    return manifest_of("table-8", rows), root


def test_training_curves_are_the_steps_of_whole_trainings(trained: tuple[Manifest, Path]) -> None:
    manifest, root = trained
    drawing = drawn(build_report(manifest, root), manifest, root, "-training")
    plotted = rows_of(drawing)
    assert [p["row"] for p in plotted] == [row for row in ("lcde", "uniform", "unfrozen-sparse") for _ in range(STEPS)]
    assert [float(p["nll"]) for p in plotted[:STEPS]] == [2 + 4 / n for n in range(1, STEPS + 1)]
    assert {p["grad_norm"] for p in plotted} == {""}
    # Of the steps' differences to uniform only those on the same batches.
    differences = [p["nll_less_baseline"] for p in plotted]
    assert differences[: 2 * STEPS] == [""] * (2 * STEPS)
    assert [float(x) for x in differences[2 * STEPS :]] == pytest.approx([8 / n for n in range(1, STEPS + 1)])
    assert drawing.about.startswith("Every training step of table-8, scale smoke.")
    drawn_lines = {axes.get_title("left"): len(axes.lines) for axes in drawing.figure.axes}
    assert drawn_lines["NLL (nats)"] == 3
    assert drawn_lines["NLL less the baseline's (nats)"] == 1
    assert (
        "Left out: Unfrozen Dense (refused, stale: its record has another fingerprint than the recipe); "
        "Frozen Sparse (refused, 4 steps written where 5 were trained); Frozen Dense (not trained yet)."
        in said(drawing)
    )


def test_differences_are_running_means_that_no_row_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "STEPS", 20)
    entries = {
        row: train(tmp_path, row, steps=20) for row in ("uniform", "unfrozen-sparse", "unfrozen-dense", "frozen-sparse")
    }
    far = tmp_path / "train/frozen-sparse/metrics.jsonl"
    far.write_text(far.read_text().replace('"nll": ', '"nll": 9'))  # 9x nats for x
    rows = tuple(
        RowEntry(row=row.key, recipe=row.recipe, units=(), train=entries[row.key])
        for row in get_target("table-8").rows
        if row.key in entries
    )
    manifest = manifest_of("table-8", rows)
    drawing = drawn(build_report(manifest, tmp_path), manifest, tmp_path, "-training")
    axes = drawing.figure.axes[2]
    sparse, dense, _ = (np.asarray(line.get_ydata(), float) for line in axes.lines)
    assert sparse == pytest.approx([(8 / n + 8 / (n + 1)) / 2 for n in range(1, 20)])
    place = axes.transData.transform
    apart = abs(place((0, sparse[0]))[1] - place((0, dense[0]))[1])
    assert apart > 0.005 * axes.bbox.height  # on a linear scale of 100 nats they would be closer


def test_seeds_are_a_mean_and_a_band(trained: tuple[Manifest, Path]) -> None:
    manifest, root = trained
    longer = train(root, "uniform-seed1")
    uniform = next(row for row in manifest.rows if row.row == "uniform")
    again = uniform.model_copy(update={"seed": 1, "train": longer})
    manifest = manifest.model_copy(update={"rows": (uniform, again)})
    drawing = drawn(build_report(manifest, root), manifest, root, "-training")
    axes = drawing.figure.axes[0]
    (line,), (band,) = axes.lines, axes.collections
    means = [2 + (len("uniform") + len("uniform-seed1")) / 2 / n for n in range(1, STEPS + 1)]
    assert [float(y) for y in line.get_ydata()] == pytest.approx(means)
    ends = [float(y) for _, y in band.get_paths()[0].vertices]
    assert (min(ends), max(ends)) == pytest.approx((2 + 7 / STEPS, 2 + 13))
    assert "mean of 2 seeds" in said(drawing)
    assert {p["seed"] for p in rows_of(drawing)} == {"0", "1"}


@pytest.mark.parametrize(("file", "content"), [("metrics.jsonl", "[]\n"), ("record.json", '{"outputs": {}}')])
def test_a_broken_training_is_refused(file: str, content: str, tmp_path: Path) -> None:
    entry = train(tmp_path, "uniform")
    assert not isinstance(read_steps(entry, tmp_path), str)
    (tmp_path / entry.address / file).write_text(content)
    assert str(read_steps(entry, tmp_path)).startswith("refused, ")


def test_files_are_vectors_with_fonts_and_the_same_bytes_in_another_process(
    trained: tuple[Manifest, Path], tmp_path: Path
) -> None:
    """And drawing them loads neither torch nor Prefect."""
    manifest, root = trained
    files = write_figures(build_report(manifest, root), manifest, root, tmp_path / "here")
    formats = ("pdf", "svg", "png", "csv")
    assert set(files) == {f"training.{suffix}" for suffix in formats}
    pdf, svg = files["training.pdf"].read_bytes(), files["training.svg"].read_bytes()
    assert b"/Subtype /Image" not in pdf
    assert b"/FontFile2" in pdf  # an embedded TrueType font
    assert b"/Type3" not in pdf
    assert b"<image" not in svg
    if shutil.which("pdffonts"):
        fonts = subprocess.run(["pdffonts", str(files["training.pdf"])], capture_output=True, text=True, check=True)
        rows = [line.split() for line in fonts.stdout.splitlines()[2:]]
        assert rows
        assert not [row for row in rows if "Type 3" in " ".join(row) or row[-5] != "yes"]  # each is embedded
    width_points = float(re.findall(rb"/MediaBox \[ ?0 0 ([\d.]+)", pdf)[0])
    assert width_points == pytest.approx(6.3 * 72, abs=0.1)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tokenweight.reports.build import build_report\n"
        "from tokenweight.reports.files import write_figures\n"
        "from tokenweight.pipeline.manifest import Manifest\n"
        "manifest, root = Manifest.model_validate_json(sys.argv[1]), Path(sys.argv[2])\n"
        "report = build_report(manifest, root)\n"
        "assert 'matplotlib' not in sys.modules\n"
        "write_figures(report, manifest, root, Path(sys.argv[3]))\n"
        "print([m for m in ('torch', 'transformers', 'datasets', 'lm_eval', 'prefect') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, manifest.model_dump_json(), str(root), str(tmp_path / "there")],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": "7"},
    )  # fmt: skip
    assert done.stdout == "[]\n"
    assert {path.name for path in (tmp_path / "there").iterdir()} == {path.name for path in files.values()}
    for path in files.values():
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes(), path.name


@pytest.mark.filterwarnings("error")
def test_labels_are_shown_literally(tmp_path: Path) -> None:
    from matplotlib.text import Text

    store = FakeStore(tmp_path)
    labels = [r"_a$x^2$\frac{1}", "b$\\alpha\n%&#"]
    for number, label in enumerate(labels):
        one = FakeStore(tmp_path)
        for benchmark, task, length in all_units(False):
            if benchmark == "ruler":
                one.add(f"m{number}", f"ruler/{task}/{length}", [0.0, 1.0, 0.5])
        store.entries[label] = one.entries[f"m{number}"]
    columns = usual_columns(["ruler"], AT, brief=False)
    shown = tuple(Row(key=label, label=label, recipe=f"r/{number}") for number, label in enumerate(labels))
    experiment = Experiment(name="evaluation", title="Two", rows=shown, columns=columns, baseline=labels[0])
    rows = [RowEntry(row=row.key, recipe=row.recipe, units=tuple(store.entries[row.key])) for row in shown]
    manifest = manifest_of(experiment, rows)
    report = build_report(manifest, tmp_path)
    drawing = drawn(report, manifest, tmp_path, "-lengths")
    texts = [text for text in drawing.figure.findobj(Text) if text.get_text()]
    assert {r" _a$x^2$\frac{1}", r"b$\alpha %&#", r" _a$x^2$\frac{1}, this run"} <= {t.get_text() for t in texts}
    assert not any(text.get_parse_math() for text in texts)
    assert write_figures(report, manifest, tmp_path, tmp_path / "out")["lengths.svg"].is_file()


def test_results_are_current_until_something_behind_them_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = FakeStore(tmp_path), tmp_path / "out"
    store.fill()
    manifest = store.manifest("table-3")

    def written() -> dict[str, Path]:
        _, paths = write_results(manifest, tmp_path, out)
        keep_manifest(manifest, tmp_path)
        return paths

    def current(figures: bool = True) -> dict[str, Path] | None:
        return files.current_results(manifest, tmp_path, out, figures)

    write_results(manifest, tmp_path, out, figures=False)
    assert current(figures=False) is None  # nobody has kept the manifest since
    paths = written()
    assert current() == paths
    other = manifest.model_copy(update={"about": "other"})
    assert files.current_results(other, tmp_path, out, figures=True) is None
    assert files.current_results(manifest, tmp_path, tmp_path / "elsewhere", figures=True) is None
    paths["lengths.png"].unlink()
    assert current() is None
    assert current(figures=False) is not None
    write_results(manifest, tmp_path, out, ("md",), "ours")
    assert current(figures=False) is None  # a table of another style lies there
    written()
    assert current()
    rows = tmp_path / manifest.rows[0].units[0].address / "rows.parquet"
    before = rows.stat().st_mtime_ns
    later = (before + 10**12,) * 2  # file systems know less than the time between two calls
    os.utime(rows, ns=later)
    assert current() is None
    os.utime(rows, ns=(before, before))
    assert current()
    (tmp_path / "code" / "html").mkdir(parents=True)
    (tmp_path / "code" / "html" / "page.py").touch()
    os.utime(tmp_path / "code" / "html" / "page.py", ns=later)
    monkeypatch.setattr(files, "__file__", str(tmp_path / "code" / "files.py"))
    assert current() is None


def test_an_empty_store_leaves_the_papers_numbers_and_says_so(tmp_path: Path) -> None:
    manifest = FakeStore(tmp_path).manifest("figure-5")
    drawing = drawn(build_report(manifest, tmp_path), manifest, tmp_path, "")
    assert {p["source"] for p in rows_of(drawing)} == {"paper"}
    assert len(rows_of(drawing)) == 12
    assert "Left out: 15 of 15 values; the table's notes say why." in said(drawing)
    (legend,) = drawing.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["uniform baseline", "the paper, Figure 5"]


def test_a_report_of_ours_alone_draws_nothing_of_the_paper(
    ablation: tuple[Report, Manifest, Path], tmp_path: Path
) -> None:
    _, manifest, root = ablation
    curve = tmp_path / "smoke" / "figure-1-curve.csv"
    write_results(manifest, root, tmp_path, ("md",))
    assert "paper" in curve.read_text()
    write_results(manifest, root, tmp_path, ("md",), "ours")
    assert "paper" not in curve.read_text()


def test_figures_can_be_left_out(full_store: FakeStore, tmp_path: Path) -> None:
    manifest = full_store.shown_in("table-3")
    write_results(manifest, full_store.root, tmp_path, figures=False)
    names = {f"table-3{end}" for end in (".md", ".tex", "-macros.tex", ".csv", ".json", ".manifest.json")}
    assert {path.name for path in (tmp_path / "smoke").iterdir()} == names
    write_results(manifest, full_store.root, tmp_path)
    drawn_names = {f"table-3-lengths.{suffix}" for suffix in ("pdf", "svg", "png", "csv")}
    assert {path.name for path in (tmp_path / "smoke").iterdir()} == names | drawn_names
    assert read_manifest(tmp_path / "smoke" / "table-3.manifest.json") == manifest


def test_nothing_at_all_is_no_result_but_what_failed_is(tmp_path: Path) -> None:
    manifest = FakeStore(tmp_path).manifest("table-10")
    with pytest.raises(
        StageError, match=r"^table-10 \(smoke\): .* has no record of it .*; run tokenweight reproduce table-10"
    ):
        write_results(manifest, tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    entry = RowEntry(row="uniform", recipe="table-3/uniform", units=())
    failed = with_failures(manifest_of("table-10", [entry]), {"table-3/uniform": "its disk is full"})
    _, files = write_results(failed, tmp_path, tmp_path / "out", figures=False)
    assert "Failed in this run: Uniform: its disk is full." in files["md"].read_text()
