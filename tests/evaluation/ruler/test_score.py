"""RULER's two metrics."""

import pytest

from tokenweight.evaluation.ruler.benchmark import Ruler
from tokenweight.recipes.schema import Evaluation


@pytest.mark.parametrize(
    ("task", "output", "references", "expected"),
    [
        ("niah_single_1", " 1234567.", ["1234567"], 1.0),
        ("niah_multivalue", " 1, 22 and 333", ["1", "22", "4444", "5555"], 0.5),
        ("vt", "ABC\x00DEF", ["ABC", "def"], 1.0),
        ("cwe", "1. Apple 2. pear", ["apple", "plum"], 0.5),
        ("qa_1", "in france, I think", ["Paris", "France"], 1.0),
        ("qa_2", "nowhere", ["Paris", "France"], 0.0),
        ("fwe", "", ["a", "b", "c"], 0.0),
    ],
)
def test_scores(task: str, output: str, references: list[str], expected: float, evaluation: Evaluation) -> None:
    assert Ruler().score(task, output, references, None, evaluation).score == expected


def test_control_characters_become_line_breaks(evaluation: Evaluation) -> None:
    assert Ruler().score("qa_1", " \x01a\tb\n", ["x"], None, evaluation).filtered == "a\nb"
