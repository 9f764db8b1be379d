"""Perplexity by context length equals the plain loss of transformers on the first N tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tokenweight.corpus.encoding import encode_prefix
from tokenweight.corpus.sources import documents
from tokenweight.evaluation.benchmark import UnitRun
from tokenweight.evaluation.rows import Journal, read_rows
from tokenweight.evaluation.run import evaluate_checkpoint
from tokenweight.evaluation.units import BENCHMARKS, Unit
from tokenweight.recipes.schema import Evaluation, Execution

LENGTHS_TOKENS = (128, 256)


@pytest.fixture
def jobs(tmp_path: Path) -> list[UnitRun]:
    return [UnitRun(Unit("perplexity", "validation", n), (), tmp_path / str(n)) for n in LENGTHS_TOKENS]


def test_equals_the_models_own_loss(
    checkpoint: Path, jobs: list[UnitRun], evaluation: Evaluation, execution: Execution, context_tokens: int
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    assert len(list(evaluate_checkpoint(checkpoint, jobs, evaluation, context_tokens, execution))) == 2
    encoded = [tokenizer(d.text).input_ids for d in documents(evaluation.perplexity.corpus, "validation")]
    for job in jobs:
        n = job.unit.length_tokens or 0
        expected = {}
        for doc_id, ids in enumerate(encoded):
            if len(ids) >= n:
                prefix = torch.tensor([ids[:n]])
                with torch.no_grad():
                    expected[doc_id] = float(model(prefix, labels=prefix).loss)
        rows = read_rows(job.out_dir)
        assert {row.doc_id: row.score for row in rows} == pytest.approx(expected, abs=1e-4)
        assert {(row.metric, row.n_prompt_tokens) for row in rows} == {("nll", n)}
        told = json.loads((job.out_dir / "summary.json").read_text())
        assert (told["n"], told["documents"], told["documents_too_short"]) == (len(expected), 4, 4 - len(expected))
        assert 0 < len(expected) < 4


def test_a_document_counts_only_at_lengths_that_it_fills(
    checkpoint: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path
) -> None:
    long = evaluation.model_copy(
        update={"perplexity": evaluation.perplexity.model_copy(update={"lengths_tokens": (128, 100_000)})}
    )
    jobs = [UnitRun(Unit("perplexity", "validation", n), (), tmp_path / str(n)) for n in (128, 100_000)]
    list(evaluate_checkpoint(checkpoint, jobs, long, 100_000, execution))
    assert 0 < len(read_rows(jobs[0].out_dir)) < 4
    assert read_rows(jobs[1].out_dir) == []
    assert json.loads((jobs[1].out_dir / "summary.json").read_text())["flags"] == ["no_samples"]


def test_resumes_behind_the_documents_that_are_done(
    checkpoint: Path, jobs: list[UnitRun], evaluation: Evaluation, execution: Execution, context_tokens: int
) -> None:
    list(evaluate_checkpoint(checkpoint, jobs, evaluation, context_tokens, execution))
    whole = {job.unit.id: read_rows(job.out_dir) for job in jobs}
    for job in jobs:
        (job.out_dir / "rows.parquet").unlink()
        Journal(job.out_dir).append(whole[job.unit.id][:1], 0.0)
    list(evaluate_checkpoint(checkpoint, jobs, evaluation, context_tokens, execution))
    assert {job.unit.id: read_rows(job.out_dir) for job in jobs} == whole


def test_only_the_text_needed_is_tokenised(checkpoint: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    text = " ".join(f"some{k}" for k in range(20_000))
    longest: list[int] = []

    def spy(piece: str, **rest: object) -> object:
        longest.append(len(piece))
        return tokenizer(piece, **rest)

    assert encode_prefix(spy, text, 300)["input_ids"][:300] == tokenizer(text).input_ids[:300]
    assert max(longest) < 5000
    assert encode_prefix(spy, "a b", 300)["input_ids"] == tokenizer("a b").input_ids


def test_a_plan_counts_the_texts_that_are_read(evaluation: Evaluation) -> None:
    settings = evaluation.perplexity
    assert BENCHMARKS["perplexity"].samples_asked(evaluation) == settings.corpus.validation_documents == 4
    fewer = evaluation.model_copy(update={"perplexity": settings.model_copy(update={"documents": 3})})
    assert BENCHMARKS["perplexity"].samples_asked(fewer) == 3
