"""docs/evaluation.md: its figures are the record's; the measurement by hand on a small run."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tokenweight.evaluation.longbench import TASKS

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
SCRIPTS = ROOT / "benchmarks" / "evaluation_effects"
COLUMNS = ["topic", "here", "official code", "lm-eval", "effect"]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"evaluation_effects_{name}", SCRIPTS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_figure_is_the_records() -> None:
    tables = script("tables")
    named = re.search(r"\]\(\.\./(benchmarks/results/[\w-]+evaluation-effects\.json)\)", DOCUMENT)
    assert named
    record = json.loads((ROOT / named.group(1)).read_text())
    rest = DOCUMENT
    for name, text in {**tables.blocks(record), **tables.figures(record)}.items():
        assert text in DOCUMENT, f"{name} is now: {text}"
        rest = rest.replace(text, "")
    others = set(re.findall(r"(?<![\w.])\d+\.\d\d+(?![\w.])", rest))
    assert others == {"2.71828"}, "a figure that is not in the record"  # that one is LCEG's constant
    assert all(run["published_equal"] == 16 for run in record["longbench"].values())


def test_each_difference_says_what_is_done_here_and_elsewhere() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in DOCUMENT.splitlines() if "|" in line]
    headers = [number for number, row in enumerate(rows) if row[0] == "topic"]
    assert [rows[number] for number in headers] == [COLUMNS] * 3
    differences = [row for row in rows if len(row) == len(COLUMNS)]
    assert len(differences) == 23
    assert all(all(row) for row in differences)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """One prediction a task: right in its second line, but in code, where a line of white space comes first."""
    rows = {
        "qa_f1": ("\nno\nAshford", ["Dunmoor", "Ashford"], None),
        "rouge_l": ("Ashford fell.", ["Ashford fell."], None),
        "classification": ("Place\nTrade", ["Place"], ["Place", "Trade"]),
        "retrieval": ("\nParagraph 3\nParagraph 4", ["Paragraph 3"], None),
        "count": ("7\n8", ["7"], None),
        "code_similarity": ("  \nreturn x", ["return x"], None),
    }
    folder = tmp_path / "model"
    folder.mkdir()
    for name, task in TASKS.items():
        output, answers, classes = rows[task.metric]
        row = {"pred": output, "answers": answers, "all_classes": classes, "length": 8192 if name == "lcc" else 9000}
        (folder / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "result.json").write_text(json.dumps({"hotpotqa": 66.67}))
    return folder


def test_each_rule_is_switched_alone(run: Path) -> None:
    found = script("longbench").measure(run.parent)["model"]
    rules = {rule: one["tasks"] for rule, one in found["first_line"].items()}
    assert [rules[rule]["hotpotqa"] for rule in ("lceg", "thudm", "none", "lm_eval")] == [0.0, 66.67, 66.67, 66.67]
    assert [rules[rule]["triviaqa"] for rule in ("lceg", "thudm", "none", "lm_eval")] == [0.0, 0.0, 66.67, 0.0]
    assert [rules[rule]["trec"] for rule in ("lceg", "thudm", "none", "lm_eval")] == [100.0, 100.0, 50.0, 100.0]
    assert [rules[rule]["passage_count"] for rule in ("lceg", "thudm")] == [100.0, 50.0]
    assert [rules[rule]["lcc"] for rule in ("thudm", "lm_eval")] == [20.0, 100.0]
    assert found["published_equal"] == 1
    assert found["references"]["tasks"]["hotpotqa"] == {"with_several": 1, "best": 66.67, "first": 0.0}
    assert found["split"]["8192_words"]["short"] == {"samples": 1, "tasks": 1, "mean": 20.0}
    assert found["split"]["under_8000_words"]["short"] == {"samples": 0, "tasks": 0, "mean": None}
    assert found["averages"]["with_chinese_21"] is None
    assert found["repeated"] == {}


def test_indel_ratio_is_the_longest_common_subsequence_twice_over_both_lengths() -> None:
    longbench = script("longbench")
    assert longbench.indel_ratio("kitten", "sitting") == pytest.approx(2 * 4 / 13)
    assert longbench.indel_similarity("# note\nx = 1", "y = 1") == 0.8
    assert longbench.indel_similarity("# only", "x") == 0.0
