"""HELMET's in-context learning on small data in the layouts that it reads, against a plain computation."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset
from prepared_prompts import Json, prepared, write

from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import Unit
from tokenweight.evaluation.helmet import TASKS, IclTask
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.recipes.schema import Evaluation, Helmet


def icl_rows(n_labels: int, counts: list[int], *fields: str) -> list[Json]:
    """Texts, some of which look like numbers or dates, with as many of each label as `counts` says in turn."""
    labels = [label for label in range(n_labels) for _ in range(counts[label % len(counts)])]
    random.Random(7).shuffle(labels)
    return [{"text": f"2020-01-{i % 28 + 1:02}" if i % 9 == 0 else f"No. {i},\nof {label}"} | dict.fromkeys(fields, label)
            for i, label in enumerate(labels)]  # fmt: skip


ICL: dict[str, tuple[str, str, int]] = {  # data set, label, how many
    "icl_trec_coarse": ("trec", "coarse_label", 6),
    "icl_trec_fine": ("trec", "fine_label", 50),
    "icl_banking77": ("banking77", "label", 77),
    "icl_clinic150": ("clinc150", "intent", 151),
    "icl_nlu": ("nlu", "label", 68),
}


@pytest.fixture(scope="module")
def icl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each set in another format; of some labels fewer than are shown, and more questions than are drawn."""
    root = tmp_path_factory.mktemp("icl")
    (root / "icl").mkdir()
    trec = [row | {"fine_label": 49 - row["coarse_label"]} for row in icl_rows(6, [9, 150], "coarse_label")]
    Dataset.from_list(trec).to_parquet(root / "icl/trec_train.parquet")
    Dataset.from_list(trec[:40]).to_parquet(root / "icl/trec_test.parquet")
    write(root / "icl/banking77_train.jsonl", icl_rows(77, [3, 12], "label"))
    write(root / "icl/banking77_test.jsonl", icl_rows(77, [7], "label"))
    Dataset.from_list(icl_rows(151, [8], "intent")).to_csv(root / "icl/clinc150_train.csv")
    Dataset.from_list(icl_rows(151, [1], "intent")).to_csv(root / "icl/clinc150_validation.csv")
    write(root / "icl/nlu_train.jsonl", icl_rows(68, [15], "label"))
    return root


def numbers_of(text: str, n_labels: int) -> list[int]:
    numbers = list(range(n_labels))
    random.seed((int(hashlib.sha256(text.encode()).hexdigest(), 16) + 42) % 2**31)
    random.shuffle(numbers)
    return numbers


@pytest.mark.parametrize("task", ICL)
def test_in_context_learning_is_drawn_balanced_and_renumbered_as_helmets(
    task: str, icl: Path, evaluation: Evaluation, checkpoint: Path, tmp_path: Path
) -> None:
    name, label, n_labels = ICL[task]
    parts = {file.stem.partition("_")[2]: as_list(file) for file in (icl / "icl").glob(f"{name}_*")}
    train, test = (
        Dataset.from_list(parts["train"]),
        Dataset.from_list(parts.get("test") or parts.get("validation") or []),
    )
    if name == "nlu":
        halves = train.train_test_split(test_size=0.1, seed=42)
        train, test = halves["train"], halves["test"]
    if len(test) > 500:
        test = test.shuffle(seed=42).select(range(500))
    given = evaluation.model_copy(update={"helmet": Helmet(data=str(icl), samples=3)})
    made = prepared(Unit("helmet", task, 131_072), given, checkpoint, tmp_path)
    of = {one: [row["text"] for row in train if row[label] == one] for one in dict.fromkeys(train[label])}
    n, draws, columns = TASKS[task].sizes[-1], random.Random(42), []
    n_rounds = math.ceil(n / len(of))
    for one, texts in of.items():
        places = draws.sample(range(len(texts)), n_rounds % len(texts))
        while len(places) < n_rounds:
            places += draws.sample(range(len(texts)), len(texts))
        columns.append([(texts[place], one) for place in places])
    demos = []
    for drawn in map(list, zip(*columns, strict=True)):
        draws.shuffle(drawn)
        demos += drawn
    assert len(demos) >= n
    for prompt, row in zip(made, test.select(range(3)), strict=True):
        numbers = numbers_of(row["text"], n_labels)
        assert prompt["references"] == [str(numbers[row[label]])]
        before, start, after = prompt["prompt"].partition('Only output "label: {label}" and nothing else. \n\n')
        assert (before, bool(start)) == (
            "Use the provided mapping from the text to label to assign a label to the text. ",
            True,
        )
        shown, end = after.removesuffix(f"\n\n{row['text']}\nlabel:"), len(f"\n\n{row['text']}\nlabel:")
        expected = "\n\n".join(f"{text}\nlabel: {numbers[one]}" for text, one in demos[:n])
        assert len(shown) == len(after) - end
        assert expected.startswith(shown)
        assert prompt["truncated"] or shown == expected


def as_list(file: Path) -> list[Json]:
    """A file's rows, read by another library."""
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    frame = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file, dtype={"text": str})
    return list(frame.to_dict("records"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a", "labels": 1}', "has no column 'label'; expected text, label"),
        ('{"text": "a", "label": 1}\n{"text": "b", "label": 77}', "row 2: has 'b' and 77; expected a text in 'text' and a number"),
        ('{"text": "a", "label": "card_arrival"}', "row 1: has 'a' and 'card_arrival'; expected a text"),
        ("text,label", "cannot be read as jsonl"),
    ],
)  # fmt: skip
def test_another_layout_of_in_context_learning_is_one_line(
    content: str, message: str, icl: Path, evaluation: Evaluation, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(icl, tmp_path / "copy"))
    (copy / "icl/banking77_train.jsonl").write_text(content)
    given, unit = (
        evaluation.model_copy(update={"helmet": Helmet(data=str(copy))}),
        Unit("helmet", "icl_banking77", 8192),
    )
    with pytest.raises(UserError, match=f"^{re.escape(str(copy))}/icl/banking77_train.jsonl.*{message}"):
        BENCHMARKS["helmet"].check_data(unit, given)
    (copy / "icl/banking77_train.jsonl").unlink()
    with pytest.raises(UserError, match=r"banking77_train.parquet missing; give HELMET's unpacked `data`.* or .csv"):
        BENCHMARKS["helmet"].check_data(unit, given)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '\ufeff{"text": "1", "label": 2}\n{"text": "2", "label": 0}\n'),
        ("a.csv", "text,label\n1,2,7\n2,0,7\n"),
    ],
)
def test_a_byte_order_mark_and_a_comma_at_the_end_shift_no_column(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    task = TASKS["icl_banking77"]
    assert isinstance(task, IclTask)
    assert task.labelled(tmp_path / name) == [("1", 2), ("2", 0)]
