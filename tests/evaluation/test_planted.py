"""The planted judge: each measure by hand, and a checkpoint's rows against the plain model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tokenweight.assets import smoke_base_dir
from tokenweight.corpus.documents import Kind
from tokenweight.corpus.stages import Chunk
from tokenweight.evaluation.benchmark import Unit, UnitRun
from tokenweight.evaluation.planted import TASKS as PLANTED_TASKS
from tokenweight.evaluation.planted import measures, roc_auc
from tokenweight.evaluation.rows import Journal, read_rows
from tokenweight.evaluation.run import evaluate_checkpoint
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.progress import no_progress
from tokenweight.recipes import load
from tokenweight.recipes.schema import Chunking, Evaluation, Execution, NovelCorpus, Planted
from tokenweight.training.stages import Score

CPU = Execution(device="cpu")
PLANTED = Planted(
    corpus=NovelCorpus(seed=5, documents=4, document_tokens=2500),
    sequences=3,
    short_tokens=256,
    stride_tokens=192,
    precision="fp32",
)


def unit(task: str, distance: int | None = None) -> Unit:
    return Unit("planted", task, distance)


def test_units_are_all_measures_and_one_recall_for_each_distance() -> None:
    evaluation = load("table-3/uniform", "smoke").evaluation
    found = BENCHMARKS["planted"].units(evaluation, 4096)
    assert {u.task for u in found} == set(PLANTED_TASKS)
    assert [u.length_tokens for u in found if u.task == "recall"] == [1024, 2048, 3072, 4096]
    shorter = BENCHMARKS["planted"].units(evaluation, 2500)
    assert [u.length_tokens for u in shorter if u.task == "recall"] == [1024, 2048, 2500]


def test_measures_by_hand() -> None:
    kinds = np.array([Kind.NONE, Kind.EASY, Kind.SHORT_RECALL, Kind.LONG_RECALL, Kind.LONG_RECALL], np.uint8)
    distances = np.array([0, 0, 4, 5, 12], np.uint32)
    long_nll = np.array([1.0, 0.5, 0.25, 0.1, 0.2])
    short_nll = np.array([1.5, 0.5, 0.0, 4.1, 0.6])  # |D| = 0.5, 0, 0.25, 4, 0.4
    right = np.array([False, True, True, True, False])
    wanted = {
        unit("abs_pmi-long_recall"): 2.2,
        unit("abs_pmi-easy"): 0.0,
        unit("nll-short_recall"): 0.25,
        unit("nll"): 0.41,
        unit("nll-short_context"): (1.0 + 0.5 + 0.25) / 3,
        unit("auc"): 5 / 6,  # of six pairs only (0.4, 0.5) is the wrong way round
        unit("recall", 4): 1.0,
        unit("recall", 8): 1.0,
        unit("recall", 12): 0.0,
    }
    absent = [unit("nll-hard"), unit("abs_pmi-name"), unit("recall", 16)]
    found = measures(long_nll, short_nll, right, kinds, distances, 4, [*wanted, *absent])
    assert found == pytest.approx(wanted)


def test_auc_counts_pairs_and_halves_ties() -> None:
    draw = np.random.default_rng(0)
    scores, positive = draw.integers(0, 6, 200).astype(float), draw.random(200) < 0.3
    pairs = scores[positive][:, None] - scores[~positive][None]
    assert roc_auc(scores, positive) == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    assert roc_auc(np.zeros(9), np.arange(9) < 3) == 0.5


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("judge")
    chunking = Chunking(long_tokens=1024, sequences=PLANTED.sequences)
    base = smoke_base_dir()
    stage = Chunk(corpus=PLANTED.corpus, chunking=chunking, short_tokens=256)
    stage.run({"tokenizer": base}, root / "chunks", CPU, no_progress)
    Score(short_tokens=256, stride_tokens=192, sequences=PLANTED.sequences, precision="fp32").run(
        {"model": base, "tokenizer": base, "chunks": root / "chunks"},
        root / "scores",
        CPU,
        no_progress,
    )
    return root / "chunks", root / "scores"


@pytest.fixture
def judged(prepared: tuple[Path, Path], evaluation: Evaluation, tmp_path: Path) -> tuple[list[UnitRun], Evaluation]:
    settings = evaluation.model_copy(update={"planted": PLANTED})
    jobs = [
        UnitRun(u, prepared, tmp_path / u.id.replace("/", "-")) for u in BENCHMARKS["planted"].units(settings, 1024)
    ]
    return jobs, settings


def test_rows_are_those_of_the_plain_model(
    prepared: tuple[Path, Path], judged: tuple[list[UnitRun], Evaluation], execution: Execution
) -> None:
    from transformers import AutoModelForCausalLM

    jobs, settings = judged
    done = list(evaluate_checkpoint(smoke_base_dir(), jobs, settings, 1024, execution))
    assert sorted(done) == sorted(job.unit for job in jobs)
    scores = {job.unit: {row.doc_id: row.score for row in read_rows(job.out_dir)} for job in jobs}

    model = AutoModelForCausalLM.from_pretrained(smoke_base_dir(), dtype=torch.float32)
    tokens, kinds, distances = (np.load(prepared[0] / f"{n}.npy") for n in ("tokens", "kinds", "distances"))
    for sequence in range(PLANTED.sequences):
        ids = torch.from_numpy(tokens[sequence].astype(np.int64))
        with torch.no_grad():
            logits = model(ids[None]).logits[0, :-1]
        nll = torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none").numpy()
        right = (logits.argmax(-1) == ids[1:]).numpy()
        assert scores[unit("nll")][sequence] == pytest.approx(nll.mean(), abs=1e-4)
        assert scores[unit("nll-short_context")][sequence] == pytest.approx(nll[:255].mean(), abs=1e-4)
        near = (distances[sequence, 1:] > 0) & (distances[sequence, 1:] <= 256)
        if near.any():
            assert scores[unit("recall", 256)][sequence] == pytest.approx(right[near].mean())
        long = kinds[sequence, 1:] == Kind.LONG_RECALL
        assert (sequence in scores[unit("auc")]) == bool(long.any())
        if long.any():
            assert scores[unit("nll-long_recall")][sequence] == pytest.approx(nll[long].mean(), abs=1e-4)
    # The base knows its world: what it can look up within its window it does not need the far context for.
    assert np.mean(list(scores[unit("abs_pmi-long_recall")].values())) > 1
    assert np.mean(list(scores[unit("abs_pmi-easy")].values())) < 0.3
    summary = json.loads((jobs[0].out_dir / "summary.json").read_text())
    assert (summary["sequences"], summary["flags"]) == (3, [])


def test_a_killed_judge_goes_on_where_it_was(
    judged: tuple[list[UnitRun], Evaluation], execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenweight.evaluation import planted

    jobs, settings = judged
    jobs = [job for job in jobs if job.unit.task in ("nll", "nll-short_context")]  # every sequence has these
    read, seen = planted._read, []

    def counted(model: object, token_ids: torch.Tensor) -> object:
        seen.append(token_ids)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return read(model, token_ids)

    monkeypatch.setattr(planted, "_read", counted)
    with pytest.raises(KeyboardInterrupt):
        list(evaluate_checkpoint(smoke_base_dir(), jobs, settings, 1024, execution))
    nll = next(job for job in jobs if job.unit == unit("nll"))
    assert len(Journal(nll.out_dir).rows) == 2
    list(evaluate_checkpoint(smoke_base_dir(), jobs, settings, 1024, execution))
    assert len(read_rows(nll.out_dir)) == 3
    assert len(seen) == 4, "only what was missing was read again"
