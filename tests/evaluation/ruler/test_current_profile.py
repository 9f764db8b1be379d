"""Profile `current`: fuller contexts by halving, a demonstration of its own for each sample, documents repeated."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenweight.evaluation.prepare import protocol
from tokenweight.evaluation.ruler.generator import generate
from tokenweight.evaluation.ruler.sources import Sources
from tokenweight.evaluation.ruler.tasks import NOISE
from tokenweight.evaluation.units import Unit
from tokenweight.recipes import load
from tokenweight.recipes.schema import Ruler


def test_a_prompt_is_as_a_person_expects(
    words_tokenizer: Path, sources: Sources, golden: Callable[[str, str], None]
) -> None:
    sample = generate("vt", 1024, 2, 42, words_tokenizer, sources, "current")[1]
    golden(
        "current-vt.txt",
        f"{sample['input']}{sample['answer_prefix']}<GENERATE>\n"
        f"--- answer prefix: {sample['answer_prefix']!r}\n--- outputs: {sample['outputs']}\n"
        f"--- length: {sample['length']} of 1024\n",
    )


def _chain(text: str) -> tuple[str, list[str]]:
    """Value and names of the one chain in a text, in order."""
    first = re.search(r"VAR (\w+) = (\d+)", text)
    assert first is not None
    value, names = first.group(2), [first.group(1)]
    while following := re.search(rf"VAR (\w+) = VAR {names[-1]}\b", text):
        names.append(following.group(1))
    return value, names


def test_each_demonstration_has_names_and_a_value_of_its_own_and_its_right_answer(
    words_tokenizer: Path, sources: Sources
) -> None:
    seen = []
    for sample in generate("vt", 1024, 6, 42, words_tokenizer, sources, "current"):
        demonstration, question = sample["input"].split("\n\nMemorize")
        value, names = _chain(demonstration)
        assert demonstration.endswith(f"are assgined the value {value}, they are:  {' '.join(names)}")
        assert [len(name) for name in names] == [3] * 5
        assert len(set(names)) == 5
        assert _chain(question)[1] == sample["outputs"]
        seen.append((value, *names))
    assert len(set(seen)) == 6
    shown = {s["input"].split("\n\n\n\nMemorize")[0] for s in generate("vt", 1024, 6, 42, words_tokenizer, sources)}
    assert len(shown) == 1  # in 2024 one for all


def test_the_size_is_the_largest_that_fits(words_tokenizer: Path, sources: Sources) -> None:
    unit = len(NOISE.split())
    for task, length_tokens in (("niah_single_1", 1024), ("niah_single_1", 4096), ("vt", 2048), ("vt", 8192)):
        for sample in generate(task, length_tokens, 3, 42, words_tokenizer, sources, "current"):
            assert length_tokens - unit < sample["length"] <= length_tokens, task


@pytest.mark.parametrize("task", ["niah_single_1", "niah_single_2", "niah_multikey_2", "niah_multivalue", "vt", "cwe"])
def test_long_contexts_are_as_full_as_the_program_makes_them(task: str, smoke_tokenizer: Path) -> None:
    fill = [s["length"] / 16384 for s in generate(task, 16384, 3, 42, smoke_tokenizer, profile="current")]
    assert 0.95 <= sum(fill) / 3 <= 1


def test_documents_are_repeated_where_there_are_too_few(words_tokenizer: Path, sources: Sources) -> None:
    sample = generate("qa_1", 2048, 1, 42, words_tokenizer, sources, "current")[0]
    assert sample["length"] > 0.95 * 2048
    documents = Counter(re.findall(r"Document \d+:\n(.*)", sample["input"]))
    assert len(documents) == 30
    assert max(documents.values()) - min(documents.values()) == 1
    assert generate("qa_1", 2048, 1, 42, words_tokenizer, sources)[0]["length"] < 0.5 * 2048


def test_recipes_choose_the_profile_and_it_is_part_of_the_identity() -> None:
    unit, evaluation = Unit("ruler", "vt", 1024), load("table-3/frozen-sparse", "smoke").recipe.evaluation

    def identity(ruler: Ruler) -> dict[str, object]:
        return protocol(unit, evaluation.model_copy(update={"ruler": ruler}))

    plain = identity(Ruler(lengths_tokens=(1024,)))
    assert "profile" not in plain  # rows from before there was a choice stay valid
    assert identity(Ruler(lengths_tokens=(1024,), profile="paper")) == plain
    assert identity(Ruler(lengths_tokens=(1024,), profile="current")) == plain | {"profile": "current"}
