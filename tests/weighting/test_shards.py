"""Sequences shared by two "processes", here threads of one: every number is that of the whole sequence.

(tests/training/test_sequence_parallel.py has real processes; this shows each index of the arithmetic to `make mutate`.)
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tokenweight.recipes.schema import Weighting
from tokenweight.training.sequence_parallel import install_attention
from tokenweight.weighting import install_head, model_nll, plan_windows, score_windows
from tokenweight.weighting.shards import SequenceShard
from tokenweight.weighting.step import weighted_step

TOKENS, PROCESSES = 32, 2


class Threads:
    """Stands in for torch.distributed where each thread of a pool is a process."""

    def __init__(self, count):
        self.count, self.barrier, self.sent = count, threading.Barrier(count, timeout=300), {}
        self.rank = threading.local()

    def _exchange(self, tensor):
        self.barrier.wait()
        self.sent[self.rank.value] = tensor
        self.barrier.wait()
        return [self.sent[rank] for rank in range(self.count)]

    def all_gather(self, parts, ours, group=None):
        for part, sent in zip(parts, self._exchange(ours), strict=True):
            part.copy_(sent)
        self.barrier.wait()

    def all_to_all_single(self, received, parts, group=None):
        for place, sent in zip(received, self._exchange(parts), strict=True):
            place.copy_(sent[self.rank.value])
        self.barrier.wait()

    def run(self, function, tokens=TOKENS):
        """function(shard) in every thread; results by rank."""

        def one(rank):
            self.rank.value = rank
            try:
                return function(SequenceShard(tokens, rank, self.count))
            except BaseException:
                self.barrier.abort()
                raise

        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(one, range(self.count)))


@pytest.fixture
def threads(monkeypatch):
    made = Threads(PROCESSES)
    for name in ("all_gather", "all_to_all_single"):
        monkeypatch.setattr(f"torch.distributed.{name}", getattr(made, name))
    return made


@pytest.fixture
def ids():
    return torch.randint(0, 50, (2, TOKENS), generator=torch.Generator().manual_seed(5))


def prepared(make_llama):
    model = make_llama(tied=False)
    install_head(model)
    install_attention(model)
    return model


def test_tokens_columns_and_parts_of_the_mean():
    shards = [SequenceShard(64, rank, 4) for rank in range(4)]
    assert [(s.own_tokens.start, s.own_tokens.stop) for s in shards] == [(0, 16), (16, 32), (32, 48), (48, 64)]
    assert [(s.own_predictions.start, s.own_predictions.stop) for s in shards] == [
        (0, 16),
        (16, 32),
        (32, 48),
        (48, 63),
    ]
    assert [s.loss_scale for s in shards] == pytest.approx([64 / 63, 64 / 63, 64 / 63, 60 / 63])
    assert SequenceShard(64, 0, 64).own_predictions == slice(0, 1)


def test_columns_come_together_in_order_and_as_constants(threads):
    whole = torch.arange(2 * 31, dtype=torch.float32).reshape(2, 31).requires_grad_()
    for gathered in threads.run(lambda shard: shard.gather(whole[:, shard.own_predictions])):
        assert torch.equal(gathered, whole)
        assert not gathered.requires_grad


@pytest.mark.parametrize("count", [1, 4, 5])
def test_rows_are_spread_evenly(threads, count):
    rows = torch.arange(count * 3).reshape(count, 3)
    given = []

    def work(part):
        given.append(len(part))
        return part + 100

    for result in threads.run(lambda shard: shard.spread(rows, work)):
        assert torch.equal(result, rows + 100)
    assert given == [-(-count // PROCESSES)] * PROCESSES  # also where they do not divide: passes must be equally many


def test_nll_of_shards_is_that_of_the_whole(make_llama, threads, ids):
    models = [prepared(make_llama) for _ in range(PROCESSES + 1)]

    def nll_and_entropy(model, own, shard=None):
        entropy = torch.empty(len(ids), own.stop - own.start)
        return model_nll(model, ids, shard=shard, entropy=entropy), entropy

    expected = nll_and_entropy(models[-1], slice(0, TOKENS - 1))
    parts = threads.run(lambda shard: nll_and_entropy(models[shard.rank], shard.own_predictions, shard))
    for given, whole in zip(zip(*parts, strict=True), expected, strict=True):
        torch.testing.assert_close(torch.cat(given, 1), whole, rtol=1e-5, atol=1e-5)


def test_attention_that_ignores_shards_is_refused(make_llama, ids):
    model = make_llama()
    install_head(model)
    with pytest.raises(ValueError, match="would not see each other"):
        model_nll(model, ids, shard=SequenceShard(TOKENS, 0, PROCESSES))


@pytest.mark.parametrize(
    ("weighting", "unfrozen"),
    [
        (Weighting(), False),
        (Weighting(postprocessing="sparse", kappa=0.2), True),
        (Weighting(postprocessing="dense", lambda_=0.5), True),
        (Weighting(score="mile", postprocessing="raw"), False),
    ],
)
def test_a_step_on_shards_is_a_step_on_the_whole(make_llama, threads, ids, weighting, unfrozen):
    plan = plan_windows(TOKENS, 8, 6)
    models = [prepared(make_llama) for _ in range(PROCESSES + 1)]

    def step(model, shard=None):
        short = None
        if unfrozen:
            short = score_windows(
                model, ids, plan, bos_token_id=1, windows_per_batch=3, first_window=False, shard=shard
            )
        made = weighted_step(
            model, ids, weighting, sequence_ids=[4, 9], seed=3, short_nll=short,
            own_first_window=plan if unfrozen else None, shard=shard,
        )  # fmt: skip
        made.loss.backward()
        return made

    whole = step(models[-1])
    parts = threads.run(lambda shard: step(models[shard.rank], shard))
    torch.testing.assert_close(torch.cat([part.nll for part in parts], 1), whole.nll, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.cat([part.weights for part in parts], 1), whole.weights, rtol=1e-4, atol=1e-4)
    assert not any(part.nll.requires_grad for part in parts)
    mean = torch.stack([part.loss.detach() for part in parts]).mean()
    torch.testing.assert_close(mean, whole.loss.detach(), rtol=1e-5, atol=1e-6)
    gradients = [dict(model.named_parameters()) for model in models]
    for name, parameter in gradients[-1].items():
        mean = (gradients[0][name].grad + gradients[1][name].grad) / PROCESSES
        assert (mean - parameter.grad).norm() < 1e-4 * parameter.grad.norm(), name
