"""The PMI over whole documents: the slow, obvious way gives the same, a cut run goes on, what is stored stays small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tokenweight.corpus.documents import Document
from tokenweight.corpus.encoding import Encoder
from tokenweight.corpus.sources import documents
from tokenweight.errors import StageError, UserError
from tokenweight.evaluation import longppl
from tokenweight.evaluation import pmi as pmi_module
from tokenweight.evaluation.benchmark import UnitRun
from tokenweight.evaluation.pmi import EDGES, HISTOGRAM_NAME, ChunkValues, Histogram, document_chunks, resume, tally
from tokenweight.evaluation.rows import Journal, Row, read_rows
from tokenweight.evaluation.run import evaluate_checkpoint
from tokenweight.evaluation.units import BENCHMARKS, Unit
from tokenweight.recipes.schema import Evaluation, Execution, Pmi

LONG, SHORT, STRIDE = 512, 128, 96
UNIT = Unit("pmi", "validation")
Values = dict[str, Any]


def with_pmi(evaluation: Evaluation, **changes: Any) -> Evaluation:
    return evaluation.model_copy(update={"pmi": evaluation.pmi.model_copy(update=changes)})


def obvious(checkpoint: Path, scorer: Path | None, evaluation: Evaluation) -> list[tuple[np.ndarray, int]]:
    """(PMI, predictions without far context) of each chunk."""
    return [(short - long, first) for short, long, first, _ in obvious_nlls(checkpoint, scorer, evaluation)]


def obvious_nlls(checkpoint: Path, scorer: Path | None, evaluation: Evaluation) -> list[tuple[Any, Any, int, int]]:
    """(short NLL, long NLL, predictions without far context, first token) of each chunk, by plain transformers, token by
    token and window by window."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    short_model = AutoModelForCausalLM.from_pretrained(scorer) if scorer else model
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)

    def nll(of: Any, ids: list[int]) -> np.ndarray:
        with torch.no_grad():
            logits = of(torch.tensor([ids])).logits[0, :-1].double()
        return -torch.log_softmax(logits, -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].numpy()

    found = []
    for document in documents(evaluation.perplexity.corpus, "validation"):
        tokens = tokenizer(document.text, add_special_tokens=False).input_ids
        for start in range(0, len(tokens), LONG - 1):
            ids = [tokenizer.bos_token_id, *tokens[start : start + LONG - 1]]
            long = nll(model, ids)
            short = np.full(len(long), np.nan)
            first = min(SHORT, len(ids)) - 1
            short[:first] = nll(short_model, ids[: first + 1]) if scorer else long[:first]
            begin = 0
            while np.isnan(short).any():
                begin = min(begin + STRIDE, len(ids) - SHORT)
                window = nll(short_model, [ids[0], *ids[begin + 1 : begin + SHORT]])
                for place, value in enumerate(window):
                    if np.isnan(short[begin + place]):
                        short[begin + place] = value
            found.append((short, long, first, start))
    return found


@pytest.fixture
def job(tmp_path: Path) -> UnitRun:
    return UnitRun(UNIT, (), tmp_path / "unit")


@pytest.mark.parametrize("kind", ["unfrozen", "frozen"])
def test_it_is_what_the_slow_way_gives(
    kind: str, checkpoint: Path, other: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path
) -> None:
    settings, scorer = with_pmi(evaluation, scorer=kind), other if kind == "frozen" else None
    job = UnitRun(UNIT, (scorer,) if scorer else (), tmp_path / "unit")
    assert list(evaluate_checkpoint(checkpoint, [job], settings, LONG, execution)) == [UNIT]
    expected, rows = obvious(checkpoint, scorer, evaluation), read_rows(job.out_dir)
    assert len(rows) == len(expected) > 4
    for row, (values, first) in zip(rows, expected, strict=True):
        told = json.loads(row.output)
        assert row.score == pytest.approx(values.mean(), abs=1e-4)
        assert row.n_prompt_tokens == len(values) + 1
        assert (told["first_window"]["tokens"], told["far_context"]["tokens"]) == (first, len(values) - first)
        far = values[first:]
        if len(far):
            assert told["far_context"]["sum"] == pytest.approx(far.sum(), abs=0.05)
            assert told["far_context"]["min"] == pytest.approx(far.min(), abs=1e-3)
            assert told["far_context"]["zero"]["sppmi"] == pytest.approx((far <= np.log(2)).sum(), abs=1)
            assert told["far_context"]["zero"]["snpmi"] == pytest.approx((far >= -np.log(2)).sum(), abs=1)
            assert told["far_context"]["zero"]["ppmi"] == pytest.approx((far <= 0).sum(), abs=1)
    histogram = Histogram.read(job.out_dir)
    every = [np.concatenate([v[:f] for v, f in expected]), np.concatenate([v[f:] for v, f in expected])]
    for counts, values in zip(histogram.counts, every, strict=True):
        assert counts.sum() == len(values)
        cumulated = np.searchsorted(np.sort(values), EDGES)  # values below each edge; rounding moves a few by a bin
        assert np.abs(np.cumsum(counts)[:-1] - cumulated).max() <= 8
    if kind == "unfrozen":  # the same tokens before them in either pass
        assert set(np.flatnonzero(histogram.counts[0])) == {len(EDGES) // 2 + 1}
    summary = json.loads((job.out_dir / "summary.json").read_text())
    assert (summary["n"], summary["documents"], summary["flags"]) == (len(rows), 4, [])
    assert summary["tokens_far_context"] == len(every[1])


def test_longppl_is_what_the_slow_way_gives(
    checkpoint: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longppl, "LEAST_GAIN_NATS", 0.01)  # of random weights none gains 2 nats
    monkeypatch.setattr(longppl, "MOST_NLL_NATS", 6.0)
    benchmark = BENCHMARKS["longppl"]
    assert benchmark.units(evaluation, SHORT) == []
    units = benchmark.units(evaluation, LONG)
    jobs = [UnitRun(unit, (), tmp_path / unit.task) for unit in units]
    assert list(evaluate_checkpoint(checkpoint, jobs, evaluation, LONG, execution)) == units
    documents: list[dict[str, list[np.ndarray]]] = []
    for short, long, first, start in obvious_nlls(checkpoint, None, evaluation):
        if start == 0:
            documents.append({"key": [], "all": []})
        is_key = (short - long > 0.01) & (long < 6) & (np.arange(len(long)) >= first)
        documents[-1]["key"].append(long[is_key])
        documents[-1]["all"].append(long)
    for job in jobs:
        expected = [nlls for document in documents if len(nlls := np.concatenate(document[job.unit.task]))]
        assert [row.score for row in read_rows(job.out_dir)] == pytest.approx([e.mean() for e in expected], abs=0.01)
        summary = json.loads((job.out_dir / "summary.json").read_text())
        assert summary["tokens"] == pytest.approx(
            sum(map(len, expected)), rel=0.02
        )  # rounding moves a few over the border
        assert (summary["documents"], len(expected) > 0) == (len(documents), True)


def test_a_cut_run_repeats_one_chunk_at_most(
    checkpoint: Path, job: UnitRun, evaluation: Evaluation, execution: Execution, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    whole = UnitRun(UNIT, (), tmp_path / "whole")
    list(evaluate_checkpoint(checkpoint, [whole], evaluation, LONG, execution))
    score, seen = pmi_module.score, []
    cut_at = [3, 5]

    def counted(ids: np.ndarray, *rest: Any) -> ChunkValues:
        seen.append(ids.tolist())
        if len(seen) in cut_at:
            raise KeyboardInterrupt
        return score(ids, *rest)

    write = Histogram.write
    monkeypatch.setattr(pmi_module, "score", counted)
    with pytest.raises(KeyboardInterrupt):
        list(evaluate_checkpoint(checkpoint, [job], evaluation, LONG, execution))
    assert (len(Journal(job.out_dir).rows), Histogram.read(job.out_dir).chunks) == (2, 2)
    with pytest.raises(KeyboardInterrupt):
        list(evaluate_checkpoint(checkpoint, [job], evaluation, LONG, execution))
    assert Histogram.read(job.out_dir).chunks == 3

    def killed(self: Histogram, out_dir: Path) -> None:  # between the row and the histogram
        monkeypatch.setattr(Histogram, "write", write)
        raise KeyboardInterrupt

    monkeypatch.setattr(Histogram, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        list(evaluate_checkpoint(checkpoint, [job], evaluation, LONG, execution))
    assert (len(Journal(job.out_dir).rows), Histogram.read(job.out_dir).chunks) == (4, 3)
    assert list(evaluate_checkpoint(checkpoint, [job], evaluation, LONG, execution)) == [UNIT]
    assert read_rows(job.out_dir) == read_rows(whole.out_dir)
    assert (job.out_dir / HISTOGRAM_NAME).read_bytes() == (whole.out_dir / HISTOGRAM_NAME).read_bytes()
    assert sorted(path.name for path in job.out_dir.iterdir()) == [HISTOGRAM_NAME, "rows.parquet", "summary.json"]
    chunks = len(read_rows(whole.out_dir))
    assert len(seen) == chunks + 3, "what was cut was read again, and nothing else"


def test_rows_and_histogram_that_do_not_fit_are_made_anew(tmp_path: Path) -> None:
    histogram = Histogram()
    histogram.add(ChunkValues(np.zeros(3, np.float32), np.ones(3, np.float32), 1))
    histogram.write(tmp_path)
    rows = {7: Row(doc_id=7, prompt_sha256="", n_prompt_tokens=1, metric="pmi", score=0.0)}
    again = resume(tmp_path, rows)
    assert (again.chunks, again.counts.sum(), rows) == (0, 0, {})
    (tmp_path / HISTOGRAM_NAME).write_bytes(b"half")
    assert resume(tmp_path, {}).chunks == 0


def test_what_is_stored_does_not_grow_with_the_text(tmp_path: Path) -> None:
    sizes = []
    for tokens in (2_000, 64_000):
        draw = np.random.default_rng(0).normal(0, 0.5, tokens).astype(np.float32)
        histogram = Histogram()
        values = ChunkValues(np.full(tokens, 2, np.float32), 2 + draw, 500)
        histogram.add(values)
        histogram.write(tmp_path)
        sizes.append((len(json.dumps(tally(values, 2.0))), (tmp_path / HISTOGRAM_NAME).stat().st_size))
        assert pq.read_table(tmp_path / HISTOGRAM_NAME).num_rows == len(EDGES) + 1
    assert max(size for pair in sizes for size in pair) < 200_000
    assert sizes[1][0] < 1.1 * sizes[0][0]


def test_values_outside_the_histogram_are_counted_at_its_ends() -> None:
    histogram = Histogram()
    short = np.array([-20, -16, 0, 15.999, 16, 40], np.float32)
    histogram.add(ChunkValues(np.zeros(6, np.float32), short, 0))
    assert histogram.counts[1][[0, 1, 4097, 8192, 8193]].tolist() == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("bos", [None, 7])
@pytest.mark.parametrize("tokens", [0, 1, 2, 9, 10, 11, 18, 19, 40])
def test_every_token_is_predicted_once(tokens: int, bos: int | None) -> None:
    text = np.arange(100, 100 + tokens, dtype=np.uint32)
    for cuts in ([], [3], [1, 17, 18]):
        found = list(document_chunks(np.split(text, cuts), 10, bos))
        predicted = [token for _, ids in found for token in ids[1:].tolist()]
        assert predicted == text[0 if bos is not None else 1 :].tolist()
        assert all(2 <= len(ids) <= 10 and (bos is None or ids[0] == bos) for _, ids in found)
        assert [int(ids[0 if bos is None else 1]) - 100 for _, ids in found] == [first for first, _ in found]


def test_a_streamed_text_is_the_encoded_one(checkpoint: Path) -> None:
    encoder = Encoder(checkpoint)
    long = Document("long", " ".join(["the quick brown fox jumps over the lazy dog"] * 10_000))
    batches = list(encoder.stream(long.text))
    assert len(batches) > 1
    assert np.array_equal(np.concatenate(batches), encoder.encode(long).tokens)
    assert [batch.tolist() for batch in encoder.stream("")] == [[]]


def test_a_scorer_must_fit(
    checkpoint: Path, other: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path
) -> None:
    long = with_pmi(evaluation, scorer="frozen", short_tokens=600, stride_tokens=500)
    with pytest.raises(UserError, match="short_tokens: 600 exceeds the scorer's context"):
        list(evaluate_checkpoint(checkpoint, [UnitRun(UNIT, (other,), tmp_path / "a")], long, 1024, execution))
    from tokenweight.assets import smoke_base_dir

    foreign = with_pmi(evaluation, scorer="frozen")
    with pytest.raises(UserError, match="another vocabulary"):
        list(
            evaluate_checkpoint(
                checkpoint, [UnitRun(UNIT, (smoke_base_dir(),), tmp_path / "b")], foreign, LONG, execution
            )
        )


def test_a_model_that_gives_no_numbers_is_named(
    checkpoint: Path, job: UnitRun, evaluation: Evaluation, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan = np.full(20, np.nan, np.float32)
    monkeypatch.setattr(pmi_module, "score", lambda *_: ChunkValues(nan, nan, 5))
    with pytest.raises(StageError, match="pmi/validation: sample 0 scores nan"):
        list(evaluate_checkpoint(checkpoint, [job], evaluation, LONG, execution))


def test_there_is_no_unit_without_far_context(evaluation: Evaluation) -> None:
    assert BENCHMARKS["pmi"].units(evaluation, SHORT) == []
    assert BENCHMARKS["pmi"].units(evaluation, SHORT + 1) == [UNIT]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stride_tokens": 128}, "must be smaller than short_tokens"),
        ({"scorer_model": {"kind": "shipped", "context_tokens": 128}}, "leave `scorer_model` out"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(fields: Values, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pmi.model_validate({"short_tokens": 128, "stride_tokens": 96, **fields})
