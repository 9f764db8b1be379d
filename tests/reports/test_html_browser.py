"""The HTML page in a real browser, where one is installed: sorting, provenance, keyboard, dark, phone, hostile text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from reports_browser import BROWSER, Page
from reports_fake_store import RULER_TASKS, FakeStore

from tokenweight.recipes import load
from tokenweight.reports.build import build_report
from tokenweight.reports.html.data import Section
from tokenweight.reports.html.page import render
from tokenweight.reports.model import Report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="NOT CHECKED: no Chromium is installed, the page was not opened"),
]
SCORES = {"lcde": [1.0, 0.0, 0.5], "uniform": [0.0, 0.0, 0.5], "frozen-dense": [1.0, 1.0, 0.0]}
HOSTILE = "</script><script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">\u202eevil"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> FakeStore:
    store = FakeStore(tmp_path_factory.mktemp("browser") / "store")
    for row, scores in SCORES.items():
        for task in RULER_TASKS:
            store.add(row, f"ruler/{task}/1024", scores, n_expected=3)
    return store


@pytest.fixture(scope="module")
def report(store: FakeStore) -> Report:
    return build_report(store.manifest(), store.root)


@pytest.fixture(scope="module")
def file(store: FakeStore, report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    loaded = load("table-3/uniform", "smoke")
    recipes = {
        loaded.name: (
            "tokenweight show-config table-3/uniform",
            list(loaded.settings()),
        )
    }
    section = Section(report, "tokenweight reproduce table-3 --scale smoke", recipes)
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(render([section], store.root, {"Table 9: Perplexity": "tokenweight x"}))
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Page(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def in_column(page: Page, index: int) -> list[str]:
    found = page.run(f"[...document.querySelector('tbody').rows].map((row) => row.cells[{index}].dataset.sort)")
    assert isinstance(found, list)
    return found


def ruler_1k(page: Page) -> int:
    index = page.run(
        "[...document.querySelector('.headings').cells].findIndex((cell) => cell.innerText.trim() === '1k')"
    )
    assert isinstance(index, int)
    return index


def test_the_page_opens_from_a_file_without_an_error_or_a_request(page: Page, file: Path, report: Report) -> None:
    page.open(file)
    cells = sum(cell.status != "not_in_paper" for row in report.rows for cell in row.cells)
    assert page.run("document.documentElement.dataset.ready") == str(cells)
    page.run("document.querySelectorAll('[data-cell]').forEach((button) => { button.click(); panel.close(); })")
    assert page.run("document.documentElement.dataset.error") is None
    assert page.complaints() == []
    assert page.requests() == [file.as_uri()]


def test_a_heading_sorts_down_up_and_back_with_what_is_missing_last(page: Page, file: Path) -> None:
    page.open(file)
    index = ruler_1k(page)
    as_printed = in_column(page, index)
    values = sorted((value for value in as_printed if value), key=float)
    missing = [value for value in as_printed if not value]
    assert len(values) == len(SCORES)
    assert missing
    press = f"document.querySelector('.headings').cells[{index}].querySelector('button').click()"
    order = f"document.querySelector('.headings').cells[{index}].getAttribute('aria-sort')"
    for expected, said in (
        (values[::-1] + missing, "descending"),
        (values + missing, "ascending"),
        (as_printed, "none"),
    ):
        page.run(press)
        assert in_column(page, index) == expected
        assert page.run(order) == said
    page.run("document.querySelector('.headings').cells[0].querySelector('button').click()")
    names = in_column(page, 0)
    assert names == sorted(names, key=str.lower)


def test_enter_opens_what_is_behind_a_number_and_escape_goes_back_to_it(page: Page, file: Path) -> None:
    page.open(file)
    page.run(
        "[...document.querySelectorAll('[data-cell]')].find((button) => { const cell = data.cells[button.dataset.cell];"
        " return cell.row === 'Uniform' && cell.column === 'RULER 1k'; }).focus()"
    )
    focused = page.run("document.activeElement.dataset.cell")
    page.press("Enter", 13, "\r")
    assert page.run("panel.open") is True
    text = page.run("panel.innerText")
    assert "tokenweight reproduce table-3 --scale smoke" in text
    assert f"{len(RULER_TASKS)} evaluation units behind it" in text
    assert "Wrong: sample 0, recall 0" in text
    assert "ruler/task_00/1024" in text
    opened = page.run(
        "(async () => { for (const one of panel.querySelectorAll('.list summary')) one.click();"
        " await new Promise((done) => setTimeout(done, 200)); return panel.innerText; })()"
    )
    assert "evaluate/uniform--ruler-task_00-1024-" in opened
    assert "training.steps" in opened
    page.press("Escape", 27)
    assert page.run("panel.open") is False
    assert page.run("document.activeElement.dataset.cell") == focused


def test_what_cells_show_can_be_chosen(page: Page, file: Path) -> None:
    page.open(file)
    shown = "getComputedStyle(document.querySelector('td .{}')).display"
    assert page.run(shown.format("paper")) == "block"
    assert page.run(shown.format("difference")) == "none"
    page.run("document.querySelector('[name=paper]').click(); document.querySelector('[name=difference]').click()")
    assert page.run(shown.format("paper")) == "none"
    assert page.run(shown.format("difference")) == "block"


def test_dark_and_light_follow_the_reader(page: Page, file: Path) -> None:
    colours = []
    for dark in (False, True):
        page.open(file, dark=dark)
        colours.append(page.run("[document.body, panel].map((e) => getComputedStyle(e).backgroundColor).join()"))
    assert colours == ["rgb(255, 255, 255),rgb(255, 255, 255)", "rgb(21, 23, 26),rgb(21, 23, 26)"]


def test_on_a_phone_the_table_scrolls_and_the_page_does_not(page: Page, file: Path) -> None:
    page.open(file, width=390, height=844, phone=True)
    assert page.run("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    assert page.run("document.querySelector('.scroll').scrollWidth > 390") is True
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.run("document.documentElement.scrollWidth") == 390
    page.run("document.querySelector('td.complete [data-cell]').click()")
    assert page.run("panel.getBoundingClientRect().width") == 390
    assert page.run("document.getElementById('panel-body').scrollWidth <= 390") is True


def test_hostile_labels_run_nothing(page: Page, store: FakeStore, report: Report, tmp_path: Path) -> None:
    rows = tuple(row.model_copy(update={"label": HOSTILE}) for row in report.rows)
    hostile = report.model_copy(update={"rows": rows, "baseline": HOSTILE})
    (tmp_path / "hostile.html").write_text(render([Section(hostile, HOSTILE)], store.root))
    page.open(tmp_path / "hostile.html")
    page.run("document.querySelector('td.complete [data-cell]').click()")
    assert page.run("document.title") == "Table 3: Main results on MMLU, LongBench and RULER (higher is better)"
    assert "[U+202E]evil" in page.run("panel.innerText")
    assert page.run("document.querySelectorAll('script').length") == 2
    assert page.complaints() == []
    assert page.requests() == [(tmp_path / "hostile.html").as_uri()]


def test_the_last_column_is_inside_at_1280_pixels(page: Page, store: FakeStore, tmp_path: Path) -> None:
    """Of Table 3 with a spread, an interval, a difference's arrow and the paper's number in each cell."""
    report = build_report(store.manifest(), store.root)
    cell = report.cell("uniform", "ruler-1k").model_copy(
        update={"value": 46.71, "spread": 1.25, "ci_low": 42.25, "ci_high": 51.75, "status": "complete"}
    )
    rows = tuple(row.model_copy(update={"cells": (cell,) * len(row.cells)}) for row in report.rows)
    (tmp_path / "page.html").write_text(render([Section(report.model_copy(update={"rows": rows}), "x")], store.root))
    page.open(tmp_path / "page.html", width=1280)
    last = "document.querySelector('.headings').lastElementChild.getBoundingClientRect().right"
    assert 900 < page.run(last) <= page.run("document.querySelector('.scroll').getBoundingClientRect().right")
