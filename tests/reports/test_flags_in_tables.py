"""From rows that trip a guard to the note below the table, in Markdown and in LaTeX."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from reports_fake_store import FakeStore, manifest_of, seal

from tokenweight.evaluation.benchmark import Unit
from tokenweight.evaluation.rows import Row, write_rows
from tokenweight.evaluation.units import benchmark_of
from tokenweight.pipeline.experiment import Emphasis
from tokenweight.pipeline.manifest import RowEntry, StageEntry
from tokenweight.reports import latex, markdown
from tokenweight.reports.build import FLAG_MEANINGS, build_report
from tokenweight.reports.targets import get_target
from tokenweight.reports.writing import styled

ROW = Row(
    doc_id=0, prompt_sha256="a" * 64, n_prompt_tokens=10, untruncated_tokens=None, truncated=False, length_words=None,
    output="A", filtered="A", reference='["A"]', metric="acc", score=0.0,
)  # fmt: skip
TRIPPING: dict[str, dict[str, Any]] = {
    "prompt_echoed": {"echoed": True},
    "missing_bos": {"bos_tokens": 0},
    "double_bos": {"bos_tokens": 2},
    "left_truncated": {"left_truncated": True},
    "mostly_truncated": {"truncated": True},
    "all_zero": {"score": 0.0},
    "all_equal": {"score": 0.5},
    "all_empty": {"output": ""},
    "implausibly_perfect": {"score": 1.0},
    "one_answer_to_everything": {"filtered": "B"},
}


def add(store: FakeStore, unit: str, rows: list[Row]) -> None:
    """A unit as the evaluation leaves it."""
    directory = store.add("uniform", unit, [0.0])
    write_rows(rows, directory)
    which = Unit(*unit.split("/")[:2])
    told = benchmark_of(which).summary(which, rows, 1.0)
    (directory / "summary.json").write_text(json.dumps(told))
    seal(directory)


@pytest.mark.parametrize("flag", TRIPPING)
def test_a_flag_stands_below_the_table(flag: str, store: FakeStore) -> None:
    def rows(**change: Any) -> list[Row]:
        varied = [{"score": float(i % 2), "filtered": "AB"[i % 2], "reference": f'["{"AB"[i % 2]}"]'} for i in range(8)]
        return [replace(ROW, doc_id=i, **(own | change)) for i, own in enumerate(varied)]

    unit = "bbh/navigate" if flag == "all_empty" else "mmlu/anatomy"
    add(store, unit, rows(**TRIPPING[flag]))
    add(store, "mmlu/virology", rows())
    report = build_report(store.manifest("table-10"), store.root)
    note = f"({FLAG_MEANINGS[flag]}): 1 unit, {unit} (Uniform)."
    assert f"Flagged {flag} {note}" in [text.text for text in report.notes]
    assert note in markdown.render(report)
    assert note in latex.render(report)
    assert flag in markdown.render(report).replace("\\_", "_")
    assert flag.replace("_", "\\_") in latex.render(report)
    assert sum("Flagged" in text.text for text in report.notes) == 1


def test_what_several_seeds_share_counts_once(store: FakeStore) -> None:
    store.add("uniform", "mmlu/anatomy", [0.0, 0.0], flags=["all_zero"])
    manifest = store.manifest("table-10")
    again = tuple(row.model_copy(update={"seed": seed}) for seed in (0, 1, 2) for row in manifest.rows)
    notes = [note.text for note in build_report(manifest.model_copy(update={"rows": again}), store.root).notes]
    assert any("1 unit, mmlu/anatomy (Uniform)." in note for note in notes)


def test_a_row_of_zeros_says_so_and_a_column_of_them_has_nothing_bold(store: FakeStore) -> None:
    for row, bbh in (("uniform", [0.0, 0.0]), ("lcde", [0.0, 1.0])):
        store.add(row, "mmlu/anatomy", [0.0, 0.0])
        store.add(row, "bbh/navigate", bbh)
    report = build_report(store.manifest("table-10"), store.root)
    assert report.cell("uniform", "mmlu").value == report.cell("lcde", "mmlu").value == 0
    texts = {note.mark: note.text for note in report.notes}
    (mark,) = report.cell("uniform", "bbh").marks
    assert texts[mark] == "LCDE, Uniform: every sample scores 0"
    assert report.cell("lcde", "mmlu").marks == (mark,)
    assert report.cell("lcde", "bbh").marks == ()
    assert not any(report.cell(row, "mmlu").emphasis for row in ("uniform", "lcde"))


@pytest.mark.parametrize("flag", ["all_empty", "prompt_echoed", "implausibly_perfect", "missing_bos", "double_bos"])
def test_what_a_broken_protocol_gives_is_never_bold(flag: str, store: FakeStore) -> None:
    """The best of the others is, and a flag that good models have now and then takes nothing away."""
    found = {"uniform": ([1.0, 1.0], [flag]), "lcde": ([1.0, 0.0], ["mostly_truncated"])}
    for row in get_target("table-10").rows:
        scores, flags = found.get(row.key, ([0.0, 0.0], []))
        for unit in ("mmlu/anatomy", "bbh/navigate"):
            store.add(row.key, unit, scores, flags=flags)
    manifest = store.manifest("table-10")
    bold = manifest.experiment.model_copy(update={"emphasis": Emphasis(bold="largest")})
    report = build_report(manifest.model_copy(update={"experiment": bold}), store.root)
    for column in ("mmlu", "bbh"):
        assert report.cell("uniform", column).value == 100
        assert report.cell("uniform", column).emphasis == ()
        assert report.cell("lcde", column).emphasis == ("bold",)


def test_a_row_is_called_by_the_scorer_that_ran(store: FakeStore) -> None:
    """Of its own parameters; the one that has not run, as standing for the paper's."""
    records = {
        "train/sparse-aaaaaaaa": ("a", {"scores": "b" * 64}, {}),
        "score/mine-bbbbbbbb": ("b", {"model": "c" * 64}, {}),
        "pretrain/small-cccccccc": ("c", {}, {"parameters": 5_507_328}),
    }
    for address, (letter, inputs, facts) in records.items():
        (store.root / address).mkdir(parents=True)
        record = {"fingerprint": letter * 64, "inputs": inputs, "facts": facts, "config": {}, "outputs": {}}
        (store.root / address / "record.json").write_text(json.dumps(record))
    train = StageEntry(address="train/sparse-aaaaaaaa", fingerprint="a" * 64)
    recipes = ("table-5/sparse-1b", "table-5/sparse-3b")
    rows = [
        RowEntry(row="sparse-1b", recipe=recipes[0], train=train),
        RowEntry(row="sparse-3b", recipe=recipes[1]),
        RowEntry(row="frozen-sparse", recipe="table-3/frozen-sparse", train=train),
    ]
    settings = dict.fromkeys(recipes, (("scorer.model.kind", "pretrain", "smoke"),))
    report = build_report(manifest_of("table-5", rows, recipes=settings), store.root)
    assert [row.label for row in report.rows[:4]] == ["-", "5.5 M", "in place of 3.2 3B", "3.1 8B"]
    assert "Our 5.5 M, in place of 3.2 3B are next to its 3.2 1B, 3.2 3B." in markdown.render(styled(report, "both"))
