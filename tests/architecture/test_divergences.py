"""Every row of reports/divergences.md names tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLUMNS = ["topic", "the paper (section)", "the authors' code (file, function)", "here", "held by", "`parity: authors`"]


def table() -> list[list[str]]:
    text = (ROOT / "reports" / "divergences.md").read_text()
    lines = text[: text.index("\n## ")].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_each_divergence_is_held_by_tests_that_exist() -> None:
    header, rule, *rows = table()
    assert header == COLUMNS
    assert set(rule) == {"---"}
    assert len(rows) > 20
    for row in rows:
        assert len(row) == len(COLUMNS), row
        assert all(row), row
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[4])
        assert named, row[0]
        for file, test in named:
            tree = ast.parse((ROOT / file).read_text())
            assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{row[0]}: {test}"


def test_what_parity_selects_is_said() -> None:
    answers = [row[5].split(":")[0].split(",")[0].split(";")[0] for row in table()[2:]]
    assert set(answers) == {"yes", "no", "same", "same with DeepSpeed"}
