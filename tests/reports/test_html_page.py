"""The HTML page without a browser: what it holds, what it never holds, and text that means harm."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reports_fake_store import RULER_TASKS, FakeStore, seal
from reports_outline import Outline

from tokenweight.errors import UserError
from tokenweight.recipes import load
from tokenweight.reports.build import build_report
from tokenweight.reports.html import data as page_parts
from tokenweight.reports.html.data import Section
from tokenweight.reports.html.page import render, write_html
from tokenweight.reports.model import Cell, Report
from tokenweight.reports.writing import styled

COMMAND = "tokenweight reproduce table-3 --scale smoke"
HOSTILE = "</script><script>alert(1)</script><!-- \" ' & <b> `x` ${y} {{ 7*7 }}\u202eevil\u202c\x00\x1b\u2028\ud800 \\"


@pytest.fixture(scope="module")
def two_rows(tmp_path_factory: pytest.TempPathFactory) -> FakeStore:
    """Table 3's rows Uniform and LCDE at RULER's first length and on MMLU; not to be changed."""
    store = FakeStore(tmp_path_factory.mktemp("two-rows") / "store")
    for row, scores in (("uniform", [0.5, 0.0, 1.0, 0.0]), ("lcde", [1.0, 0.0, 1.0, 1.0])):
        for task in RULER_TASKS:
            store.add(row, f"ruler/{task}/1024", scores, n_expected=4)
        store.add(row, "mmlu/anatomy", [round(scores[0])])
    return store


@pytest.fixture(scope="module")
def full_report(two_rows: FakeStore) -> Report:
    return styled(build_report(two_rows.manifest(), two_rows.root), "both")


@pytest.fixture(scope="module")
def full_page(full_report: Report, two_rows: FakeStore) -> str:
    recipe = load("table-3/uniform", "smoke")
    settings = list(recipe.settings())
    recipes = {recipe.name: ("tokenweight show-config table-3/uniform --scale smoke", settings)}
    return render([Section(full_report, COMMAND, recipes)], two_rows.root)


@pytest.fixture
def one_row(store: FakeStore) -> FakeStore:
    """Table 3's row Uniform at RULER's first length; all else is missing."""
    for task in RULER_TASKS:
        store.add("uniform", f"ruler/{task}/1024", [0.5, 0.0, 1.0, 0.0, 1.0], n_expected=5)
    return store


def change_rows(directory: Path, **columns: list[Any]) -> None:
    table = pq.read_table(directory / "rows.parquet")
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    pq.write_table(table, directory / "rows.parquet")
    seal(directory)


def change_record(directory: Path, **fields: Any) -> None:
    record = json.loads((directory / "record.json").read_text()) | fields
    (directory / "record.json").write_text(json.dumps(record))


def outline(store: FakeStore, **changes: Any) -> Outline:
    report = build_report(store.manifest(), store.root).model_copy(update=changes)
    return Outline(render([Section(report, COMMAND)], store.root))


def unit(data: dict[str, Any], name: str) -> dict[str, Any]:
    return next(artifact for artifact in data["artifacts"] if artifact["unit"] == name)


def test_the_page_holds_every_known_divergence_and_no_link_to_a_file(full_page: str) -> None:
    document = (Path(__file__).parents[2] / "reports" / "divergences.md").read_text()
    topics = [line.split(" | ")[0].removeprefix("| ") for line in document.splitlines() if line.startswith("| ")]
    section = full_page.partition('id="divergences"')[2].partition("</section>")[0]
    assert len(topics) > 30
    assert [topic for topic in topics if topic not in ("|", "") and f"<td>{topic}</td>" not in section] == ["topic"]
    assert "naacl2025-token-weighting" in section
    assert "href" not in section


def test_each_cell_opens_its_own_units(full_page: str, full_report: Report) -> None:
    page = Outline(full_page)
    cells = [
        (row, column, cell)
        for row in full_report.rows
        for column, cell in zip(full_report.columns, row.cells, strict=True)
        if cell.status != "not_in_paper"
    ]
    assert list(page.cells) == [str(number) for number in range(len(cells))]
    assert len(page.data["cells"]) == len(cells)
    for number, (row, column, cell) in enumerate(cells):
        entry = page.data["cells"][number]
        assert entry["recipe"] == row.recipe
        assert entry["column"] == " ".join(filter(None, (column.group, column.label)))
        assert tuple(page.data["artifacts"][unit]["address"] for unit in entry["units"]) == cell.addresses
        assert page.cells[str(number)].startswith(entry["value"])
        assert cell.paper is None or cell.paper.printed in page.cells[str(number)]
        if cell.less_paper is not None:
            less = entry["facts"]["Ours less the paper's"]
            assert float(less) == pytest.approx(round(cell.value, column.decimals) - cell.paper.value, abs=1e-9)
            assert page.cells[str(number)].endswith(f"{cell.paper.printed} {less}")
    assert any(cell.less_paper is not None for _, _, cell in cells)
    compared = [entry["facts"] for entry in page.data["cells"] if "Difference to Uniform" in entry["facts"]]
    tested = next(facts for facts in compared if ", p" in facts["Difference to Uniform"])
    assert "before correction" in tested["Test"]
    untested = next(facts for facts in compared if "(not tested)" in facts["Difference to Uniform"])
    assert untested["Test"].startswith("not tested: ")


def test_only_what_a_table_holds_can_be_chosen(full_report: Report, full_page: str, two_rows: FakeStore) -> None:
    boxes = re.findall(r'<input type="checkbox" name="(\w+)"', full_page)
    assert boxes == ["interval", "difference", "paper"]
    rows = tuple(
        row.model_copy(
            update={
                "cells": tuple(
                    cell.model_copy(update={"ci_low": None, "ci_high": None, "difference": None, "paper": None})
                    for cell in row.cells
                )
            }
        )
        for row in full_report.rows
    )
    bare = Section(full_report.model_copy(update={"rows": rows}), COMMAND)
    assert '<input type="checkbox"' not in render([bare], two_rows.root)


def test_a_recipe_shows_its_settings_with_their_origin(full_page: str) -> None:
    data = Outline(full_page).data
    recipe = data["recipes"]["table-3/uniform"]
    settings = {data["parts"][number][0]: data["parts"][number][1:] for number in recipe["settings"]}
    loaded = load("table-3/uniform", "smoke")
    assert loaded.training
    assert settings["training.steps"] == [loaded.training.steps, loaded.origins["training.steps"]]
    assert recipe["command"].startswith("tokenweight show-config table-3/uniform")
    assert data["commands"] == [COMMAND]


def test_nothing_is_fetched_and_the_same_records_give_the_same_page(
    full_page: str, full_report: Report, two_rows: FakeStore
) -> None:
    page = Outline(full_page)
    assert len(page.scripts) == 2
    assert not [tag for tag, _ in page.elements if tag in ("link", "iframe", "object", "embed", "base")]
    addresses = [a[name] for _, a in page.elements for name in ("src", "href", "action", "srcset") if name in a]
    assert [address for address in addresses if not str(address).startswith(("#", "data:"))] == []
    assert "default-src 'none'" in full_page
    assert str(two_rows.root) not in full_page
    again = render([Section(full_report, COMMAND)], two_rows.root)
    assert again == render([Section(full_report, COMMAND)], two_rows.root)


def test_what_is_missing_shows_a_dash_its_note_and_sorts_last(one_row: FakeStore) -> None:
    page = outline(one_row)
    missing = [i for i, cell in enumerate(page.data["cells"]) if cell["facts"]["Status"] == "missing"]
    assert missing
    for number in missing:
        assert page.cells[str(number)].startswith("—")
        assert page.data["cells"][number]["notes"]
    columns = [attributes for tag, attributes in page.elements if tag == "td" and "data-sort" in attributes]
    assert {a["data-sort"] for a in columns if a["class"] != "complete"} == {""}
    assert "" not in {a["data-sort"] for a in columns if a["class"] == "complete"}


def test_the_first_lowest_and_highest_samples_are_chosen(one_row: FakeStore) -> None:
    data = outline(one_row).data
    assert [(s["doc_id"], s["score"]) for s in unit(data, "ruler/task_00/1024")["samples"]] == [(1, 0.0), (2, 1.0)]


def test_samples_of_equal_scores_are_one_and_perplexity_has_none(store: FakeStore) -> None:
    for task in RULER_TASKS:
        directory = store.add("uniform", f"ruler/{task}/1024", [1.0, 1.0], n_expected=2)
    change_rows(directory, output=["{}", "{}"], filtered=["", ""], reference=["[]", "[]"])
    data = outline(store).data
    assert [s["doc_id"] for s in unit(data, "ruler/task_00/1024")["samples"]] == [0]
    assert unit(data, f"ruler/{RULER_TASKS[-1]}/1024")["samples"] == []


def prepare(store: FakeStore, prompts: list[str]) -> str:
    fingerprint = "ab" * 32
    directory = store.root / f"prepare/ruler-{fingerprint[:8]}"
    directory.mkdir(parents=True)
    (directory / "prompts.jsonl").write_text(
        "".join(json.dumps({"doc_id": i, "prompt": text}) + "\n" for i, text in enumerate(prompts))
    )
    record = {"stage": "prepare", "fingerprint": fingerprint, "outputs": {}, "config": {"unit": {"task": "x"}}}
    (directory / "record.json").write_text(json.dumps(record))
    return fingerprint


def test_a_prompt_is_shown_only_where_it_is_the_one_that_was_asked(one_row: FakeStore) -> None:
    prompts = [f"question {i} " + "x" * 3000 + " end" for i in range(5)]
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in prompts]
    fingerprint = prepare(one_row, prompts)
    first, second = (one_row.root / entry.address for entry in one_row.entries["uniform"][:2])
    for directory in (first, second):
        change_record(directory, inputs={"prepared": fingerprint})
    change_rows(first, prompt_sha256=digests)
    change_rows(second, prompt_sha256=[digests[0], "another", digests[2], "another", "another"])
    data = outline(one_row).data
    lowest, highest = unit(data, "ruler/task_00/1024")["samples"]
    head, left_out, tail = data["prompts"][lowest["prompt"]]
    assert head == prompts[1][:600]
    assert tail == prompts[1][-600:]
    assert left_out == len(prompts[1]) - 1200
    assert data["prompts"][highest["prompt"]][0] == prompts[2][:600]
    lowest, highest = unit(data, "ruler/task_01/1024")["samples"]
    assert "prompt" not in lowest
    assert data["prompts"][highest["prompt"]][0] == prompts[2][:600]
    assert len(data["prompts"]) == 2  # what two units share is there once


def test_an_artifact_is_linked_to_what_it_was_made_from(one_row: FakeStore) -> None:
    fingerprint = prepare(one_row, ["a"])
    entry = one_row.entries["uniform"][0]
    like_it = fingerprint[:8] + "0" * 56
    change_record(one_row.root / entry.address, inputs={"prepared": fingerprint, "checkpoint": like_it})
    data = outline(one_row).data
    inputs = unit(data, entry.unit)["inputs"]
    assert data["artifacts"][inputs["prepared"]]["fingerprint"] == fingerprint
    assert inputs["checkpoint"] == like_it  # the same beginning is not the same artifact


def test_an_evaluation_is_called_by_seed_and_task(one_row: FakeStore) -> None:
    entry, fingerprint = one_row.entries["uniform"][0], "c" * 64
    trained = one_row.root / f"train/uniform-seed3-{fingerprint[:8]}"
    trained.mkdir(parents=True)
    record = {"stage": "train", "fingerprint": fingerprint, "config": {"seed": 3}, "inputs": {}, "outputs": {}}
    (trained / "record.json").write_text(json.dumps(record))
    change_record(one_row.root / entry.address, inputs={"checkpoint": fingerprint})
    found = unit(outline(one_row).data, entry.unit)
    assert (found["seed"], found["unit"]) == (3, "ruler/task_00/1024")


def test_hostile_text_is_shown_and_does_nothing(one_row: FakeStore) -> None:
    directory = one_row.root / one_row.entries["uniform"][0].address
    printable = HOSTILE.replace("\ud800", "")  # Parquet holds no lone surrogates, JSON may
    change_rows(directory, output=[printable] * 5, reference=[printable] * 5, filtered=[printable] * 5)
    change_record(
        directory, versions={HOSTILE: HOSTILE, "lm-eval": "0.4.13"}, devices=[HOSTILE], facts={"flags": [HOSTILE]}
    )
    report = build_report(one_row.manifest(), one_row.root)
    rows = tuple(row.model_copy(update={"label": HOSTILE, "group": HOSTILE}) for row in report.rows)
    columns = tuple(column.model_copy(update={"label": HOSTILE}) for column in report.columns)
    notes = tuple(note.model_copy(update={"text": HOSTILE}) for note in report.notes)
    changes = {
        "rows": rows,
        "columns": columns,
        "notes": notes,
        "title": HOSTILE,
        "target": HOSTILE,
        "baseline": HOSTILE,
    }
    hostile = report.model_copy(update=changes)
    text = render([Section(hostile, HOSTILE)], one_row.root, {HOSTILE: HOSTILE})
    text.encode()  # no lone surrogate is left
    page = Outline(text)
    assert len(page.scripts) == text.count("</script") == 2
    assert "<" not in page.scripts[0]
    assert not set(text) & set("\x00\x1b\u202e\u202c\u2028")
    assert "{{ 7*7 }}" in text
    assert page.data["commands"][0].startswith("</script>")
    assert "[U+202E]evil[U+202C][U+0000][U+001B][U+2028][U+D800]" in page.data["commands"][0]
    assert unit(page.data, "ruler/task_00/1024")["samples"][0]["output"][0].startswith("</script>")


def test_a_long_output_is_cut_and_a_full_page_says_what_it_leaves_out(one_row: FakeStore, monkeypatch) -> None:
    first, second = (one_row.root / entry.address for entry in one_row.entries["uniform"][:2])
    change_rows(first, output=["y" * 10_000_000] * 5)
    change_rows(second, output=["z" * 1000] * 5)
    data = outline(one_row).data
    assert unit(data, "ruler/task_00/1024")["samples"][0]["output"] == ["y" * 400, 10_000_000 - 600, "y" * 200]
    assert data["samplesLeftOut"] == 0
    monkeypatch.setattr(page_parts, "PAGE_CHARACTERS", 1300)
    data = outline(one_row).data
    assert data["samplesLeftOut"] > 0
    assert [len(unit(data, f"ruler/task_0{i}/1024")["samples"]) for i in (0, 1)] == [1, 1]


def test_a_damaged_record_is_shown_as_far_as_it_goes(one_row: FakeStore) -> None:
    report = build_report(one_row.manifest(), one_row.root)
    first, second, third = (one_row.root / entry.address for entry in one_row.entries["uniform"][:3])
    change_record(first, facts={"mean_score": float("nan"), "flags": 7}, git=[1], devices=None, wall_seconds="x")
    change_record(second, inputs=[1], outputs={"rows.parquet": {"bytes": "x", "sha256": 3}}, started=None)
    (third / "record.json").write_text("{")
    page = Outline(render([Section(report, COMMAND)], one_row.root))
    assert unit(page.data, "ruler/task_00/1024")["facts"]["mean_score"] == "nan"
    assert unit(page.data, "ruler/task_01/1024")["inputs"] == {}
    cell = next(cell for cell in page.data["cells"] if cell["row"] == "Uniform" and cell["column"] == "RULER 1k")
    assert cell["unread"] == 1


def test_an_address_outside_the_store_is_not_read(one_row: FakeStore) -> None:
    report = build_report(one_row.manifest(), one_row.root)
    outside = one_row.root.parent / "outside"
    outside.mkdir()
    (outside / "record.json").write_text(json.dumps({"outputs": {}, "config": {"unit": "secret"}}))
    rows = tuple(
        row.model_copy(
            update={"cells": tuple(c.model_copy(update={"addresses": ("../outside", str(outside))}) for c in row.cells)}
        )
        for row in report.rows
    )
    page = render([Section(report.model_copy(update={"rows": rows}), COMMAND)], one_row.root)
    assert "secret" not in page
    assert Outline(page).data["artifacts"] == []


def test_figures_are_pictures_that_run_nothing(one_row: FakeStore) -> None:
    report = build_report(one_row.manifest(), one_row.root)
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    figures = {"Table 3: RULER by length": svg, 'Table 3: "training"': svg}
    page = Outline(render([Section(report, COMMAND, figures=figures)], one_row.root))
    pictures = [attributes for tag, attributes in page.elements if tag == "img"]
    assert {str(picture["src"])[:26] for picture in pictures} == {"data:image/svg+xml;base64,"}
    assert [picture["alt"] for picture in pictures] == list(figures)
    assert len(page.scripts) == 2


def test_the_page_of_all_lists_what_was_not_run_and_takes_in_written_reports(
    two_rows: FakeStore, tmp_path: Path
) -> None:
    table_6 = tmp_path / "table-6.json"
    table_6.write_text((Path(__file__).parents[2] / "benchmarks/results/table-6.json").read_text())
    (tmp_path / "broken.json").write_text("{")
    page = tmp_path / "new/all.html"
    missing = two_rows.shown_in("table-4").model_copy(
        update={"inputs": {"corpus": "my books", "set training.steps": "3"}}
    )
    manifests = [two_rows.manifest(), missing]
    write_html(manifests, two_rows.root, page, figures=False, written=tmp_path.glob("*.json"))
    text = page.read_text()
    ids = [attributes.get("id") for tag, attributes in Outline(text).elements if tag == "section"]
    assert ids == ["table-3", "table-6", "not-run", "divergences"]
    command = "tokenweight reproduce table-4 --scale smoke --corpus &#39;my books&#39; --set training.steps=3"
    assert f"<code>{command}</code>" in text


@pytest.mark.slow
def test_an_experiment_brings_its_figures(tmp_path: Path) -> None:
    manifest = FakeStore(tmp_path).manifest("figure-5")
    for figures, least, most in ((True, 1, 9), (False, 0, 0)):
        write_html([manifest], tmp_path, tmp_path / "page.html", figures=figures)
        pictures = [tag for tag, _ in Outline((tmp_path / "page.html").read_text()).elements if tag == "img"]
        assert least <= len(pictures) <= most


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_html([], tmp_path, tmp_path / "file/page.html")


def of_one_test(report: Report, target: str, p: float) -> Report:
    """The report with one tested difference, by itself."""
    left = iter([p])

    def changed(cell: Cell) -> Cell:
        first = next(left, None) if cell.difference else None
        tested = cell.difference.model_copy(update={"p": p, "p_corrected": p}) if cell.difference and first else None
        return cell.model_copy(update={"difference": tested})

    rows = tuple(row.model_copy(update={"cells": tuple(map(changed, row.cells))}) for row in report.rows)
    return report.model_copy(update={"target": target, "rows": rows})


def test_a_page_says_what_one_family_of_all_its_tests_would_change(full_report: Report, two_rows: FakeStore) -> None:
    first, second = of_one_test(full_report, "table-3", 0.03), of_one_test(full_report, "table-4", 0.04)
    page = render([Section(first, COMMAND), Section(second, COMMAND)], two_rows.root)
    assert "Were all 2 tests of the 2 tables here one family, 0 of the 2 differences" in page
    assert "one family" not in render([Section(first, COMMAND)], two_rows.root)
