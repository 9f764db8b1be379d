"""The tokens of one phrase: the numbers of `inspect`, the longest context before it, rules that choose it, mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from tokenweight.corpus.documents import Document, Kind
from tokenweight.corpus.sources import documents
from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import UnitRun
from tokenweight.evaluation.phrase import read_sequence
from tokenweight.evaluation.rows import Row, read_rows
from tokenweight.evaluation.run import evaluate_checkpoint
from tokenweight.evaluation.units import BENCHMARKS, Unit
from tokenweight.recipes.schema import Evaluation, Execution, NovelCorpus, Phrase

CONTEXT, SHORT, STRIDE = 512, 128, 96
WORDS = "over the lazy dog"
Told = tuple[dict[str, list[Row]], dict[str, Any]]


def with_phrase(evaluation: Evaluation, **changes: Any) -> Evaluation:
    return evaluation.model_copy(update={"phrase": Phrase(**changes)})


def measured(
    checkpoint: Path, evaluation: Evaluation, execution: Execution, out_dir: Path, scorer: Path | None = None
) -> Told:
    prepared = (scorer,) if scorer else ()
    jobs = [UnitRun(unit, prepared, out_dir / unit.task) for unit in BENCHMARKS["phrase"].units(evaluation, CONTEXT)]
    assert len(list(evaluate_checkpoint(checkpoint, jobs, evaluation, CONTEXT, execution))) == 3
    summaries = [json.loads((job.out_dir / "summary.json").read_text()) for job in jobs]
    assert summaries[0]["tokens"] == summaries[1]["tokens"] == summaries[2]["tokens"]
    return {job.unit.task: read_rows(job.out_dir) for job in jobs}, summaries[0]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Fewer tokens than the context; the phrase stands behind the first window."""
    file = tmp_path / "text.txt"
    file.write_text(f"{'So the answer is False. ' * 12}The quick brown fox jumps {WORDS}. {'Numbers 012. ' * 5}")
    return file


@pytest.mark.parametrize("kind", ["unfrozen", "frozen"])
def test_it_is_what_inspect_shows(
    kind: str, checkpoint: Path, other: Path, text: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path
) -> None:
    from tokenweight.inspection.compute import inspect
    from tokenweight.inspection.request import Options

    scorer = other if kind == "frozen" else None
    chosen = with_phrase(evaluation, file=str(text), words=WORDS, scorer=kind)
    rows, summary = measured(checkpoint, chosen, execution, tmp_path / "out", scorer)
    options = Options(scorer=scorer, short_tokens=SHORT, stride_tokens=STRIDE, device="cpu")
    shown = inspect(checkpoint, text, options)[0]["tokens"]
    assert "".join(summary["tokens"]).strip() == WORDS
    texts = shown["text"]
    first = next(i for i in range(len(texts)) if "".join(texts[i:]).lstrip().startswith(WORDS))
    while not texts[first].strip():
        first += 1
    phrase = slice(first, first + len(summary["tokens"]))
    assert texts[phrase] == summary["tokens"]
    for task in ("long_nll", "short_nll"):
        assert [row.score for row in rows[task]] == pytest.approx(shown[task][phrase], rel=1e-5)
    differences = [abs(a.score - b.score) for a, b in zip(rows["long_nll"], rows["short_nll"], strict=True)]
    assert [row.score for row in rows["difference"]] == pytest.approx(differences, abs=1e-6)
    assert min(differences) > 0
    assert "It was given." in summary["about"]


def test_a_long_text_is_read_up_to_the_phrase(checkpoint: Path, evaluation: Evaluation, tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    before, after = ("The quick brown fox. " * n for n in (300, 200))
    file.write_text(f"{before}{WORDS}, {after}")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    sequence, phrase, _ = read_sequence(with_phrase(evaluation, file=str(file), words=WORDS), tokenizer, CONTEXT)
    assert len(sequence.ids) == len(sequence.texts) == CONTEXT
    assert sequence.ids[0] == tokenizer.bos_token_id
    assert phrase is not None
    assert phrase.stop == CONTEXT
    assert "".join(sequence.texts).endswith(f"fox. {WORDS}")
    assert sequence.ids[1:] == tokenizer(f"{before}{WORDS}", add_special_tokens=False).input_ids[-CONTEXT + 1 :]


def recalls_start(document: Document, character: int) -> int:
    """Where the span begins that holds a character."""
    return next(span.start for span in document.spans if span.start <= character < span.end)


def test_in_the_novel_it_is_round_the_fact_from_farthest_back(checkpoint: Path, evaluation: Evaluation) -> None:
    corpus = NovelCorpus(seed=5, validation_documents=1, document_tokens=3000)
    novel = evaluation.model_copy(update={"perplexity": evaluation.perplexity.model_copy(update={"corpus": corpus})})
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    sequence, phrase, why = read_sequence(novel, tokenizer, 2000)
    assert phrase is not None
    assert read_sequence(novel, tokenizer, 2000) == (sequence, phrase, why)
    document = next(iter(documents(corpus, "validation")))
    found = re.search(r"round '(.+)', the first token of a fact that was last stated (\d+) tokens before", why)
    assert found is not None
    middle = phrase.start + 6
    assert sequence.texts[middle].strip() == found[1]
    assert int(found[2]) > SHORT
    start = len("".join(sequence.texts[: middle + 1])) - 1
    assert sequence.texts[middle].strip() == document.text[recalls_start(document, start) :][: len(found[1])]
    recalls = [s for s in document.spans if s.kind is Kind.SHORT_RECALL and s.start <= start < s.end]
    assert len(recalls) == 1
    fact = recalls[0].fact
    assert any(span.fact == fact and span.end < recalls[0].start for span in document.spans)


def test_elsewhere_it_is_round_the_largest_difference(
    checkpoint: Path, other: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path
) -> None:
    rows, summary = measured(checkpoint, evaluation, execution, tmp_path, other)
    assert len(summary["tokens"]) == 13
    assert "round the largest difference of losses" in summary["about"]
    scores = [row.score for row in rows["difference"]]
    before = [row.n_prompt_tokens for row in rows["difference"]]
    assert before == list(range(before[0], before[0] + 13))
    assert before[int(np.argmax(scores))] >= SHORT


@pytest.mark.parametrize(
    ("content", "words", "told"),
    [
        (None, WORDS, "no such file; give the text"),
        ("A text without it.", WORDS, "does not contain 'over the lazy dog'; give words"),
        (b"\xff\xfe\xff", WORDS, "not UTF-8"),
    ],
)
def test_a_text_that_cannot_be_used_is_told_in_one_line(
    content: str | bytes | None, words: str, told: str, checkpoint: Path, evaluation: Evaluation, tmp_path: Path
) -> None:
    file = tmp_path / "text.txt"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    chosen = with_phrase(evaluation, file=str(file), words=words)
    with pytest.raises(UserError, match=re.escape(told)) as refused:
        BENCHMARKS["phrase"].raw_files(Unit("phrase", "long_nll"), chosen)
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match=re.escape(told)):
        read_sequence(chosen, AutoTokenizer.from_pretrained(checkpoint), CONTEXT)
