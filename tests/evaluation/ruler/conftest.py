"""Small sources of our own in the official schemas, and tokenizers to size with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenweight.assets import smoke_base_dir
from tokenweight.evaluation.ruler.tasks import Sources

GOLDEN = Path(__file__).parents[2] / "golden" / "ruler"
COLORS = ("red", "blue", "green", "white", "black", "grey", "pink", "brown", "gold", "teal")
PROSE = (
    'The boat came in at noon. Mr. Hale stood on the pier with his hat in his hand. "Is it late?" he asked. '
    "Nobody knew. The gulls turned over the harbour and the wind fell. In the evening they lit the lamps, no. 4 first. "
)


@pytest.fixture(scope="session")
def words_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer directory with one token a word, and BOS: golden prompts depend on no learned vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    directory = tmp_path_factory.mktemp("words-tokenizer")
    tokenizer = Tokenizer(models.WordLevel({"<bos>": 0, "<unk>": 1}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", unk_token="<unk>").save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def smoke_tokenizer() -> Path:
    """The shipped tokenizer."""
    return smoke_base_dir()


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """A directory of two essays, 30 SQuAD paragraphs of 3 articles, 20 HotpotQA entries of 10 documents."""
    root = tmp_path_factory.mktemp("ruler-sources")
    (root / "essays").mkdir()
    for name, start in (("b.txt", 0), ("a.txt", 40)):
        text = " ".join(PROSE.replace("noon", f"hour {start + i}") for i in range(40))
        (root / "essays" / name).write_text(text + "\n\n", encoding="utf-8")
    paragraphs = [
        {
            "context": f"House {n} of street {a} is painted {color}. It has {n + 3} windows and one door.",
            "qas": [
                {"question": f"Which color has house {n} of street {a}?", "is_impossible": False, "id": f"{a}-{n}",
                 "answers": [{"text": color, "answer_start": 0}, {"text": f"painted {color}", "answer_start": 0}]},
                {"question": "Who built it?", "is_impossible": True, "id": f"{a}-{n}-x", "answers": []},
            ],
        }
        for a in range(3) for n, color in enumerate(COLORS)
    ]  # fmt: skip
    articles = [{"title": str(a), "paragraphs": paragraphs[10 * a : 10 * a + 10]} for a in range(3)]
    (root / "squad.json").write_text(json.dumps({"version": "v2.0", "data": articles}), encoding="utf-8")
    entries = [
        {
            "_id": str(n), "question": f"Where was the maker of clock {n} born?", "answer": f"Town {n + 1}",
            "supporting_facts": [[f"Clock {n}", 0], [f"Maker {n}", 0]],
            "context": [
                [f"Clock {n}", [f"Clock {n} was made by maker {n}.", " It is of brass."]],
                [f"Maker {n}", [f"Maker {n} was born in Town {n + 1}."]],
                *[[f"Clock {n}{d}", [f"Clock {n}{d} stands still.", " Nobody winds it."]] for d in "abcdefgh"],
            ],
        }
        for n in range(20)
    ]  # fmt: skip
    (root / "hotpotqa.json").write_text(json.dumps(entries), encoding="utf-8")
    return {"haystack": root / "essays", "squad": root / "squad.json", "hotpotqa": root / "hotpotqa.json"}


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with a golden file that a person can read; UPDATE_GOLDEN=1 writes it anew."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text, f"{path} differs; UPDATE_GOLDEN=1 writes it anew"

    return check
