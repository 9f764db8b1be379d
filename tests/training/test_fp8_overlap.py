"""The overlap of two choices of tokens, where it is known."""

import pytest
import torch

import tokenweight.authors_compat as authors
from tokenweight.fp8 import choosing_weighting, top_kappa_overlap
from tokenweight.recipes.schema import Weighting

SPARSE = Weighting(postprocessing="sparse", kappa=0.2)
DENSE = Weighting(postprocessing="dense", lambda_=0.75)


def overlap(long_nll, short_nll, other, weighting=SPARSE, **more):
    ids = range(len(long_nll))
    return top_kappa_overlap(long_nll, short_nll, other, weighting, sequence_ids=ids, seed=3, **more)


def test_the_same_scores_overlap_wholly_ties_and_all():
    nll = torch.rand((3, 50), generator=torch.Generator().manual_seed(0))
    assert overlap(nll, nll + 0.5, nll + 0.5) == (30, 30)  # all scores alike: chosen at random, by the same draw
    assert overlap(nll, 2 * nll, 2 * nll, DENSE) == (30, 30)
    assert overlap(nll, nll + 0.5, 2 * nll, SPARSE.model_copy(update={"kappa": 1.0})) == (150, 150)  # all are chosen


@pytest.mark.parametrize("weighting", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_moved_tokens_are_missing(weighting):
    """20 columns, 4 chosen in each sequence: 3 the same in the first, none in the second."""
    long_nll = torch.zeros(2, 20)
    short, other = (torch.linspace(0, 0.1, 20).repeat(2, 1) for _ in range(2))
    short[:, :4] = torch.tensor([5.0, -4.0, 3.0, 2.0])  # abs(PMI) ranks by size alone
    other[0, :3] = torch.tensor([1.0, 2.0, -3.0])
    other[0, 7] = 9.0
    other[1, 10:14] = 1.0
    assert overlap(long_nll, short, other, weighting) == (3, 8)


def test_the_weighting_s_score_and_kappa_decide():
    long_nll = torch.zeros(1, 10)
    short = torch.tensor([[5.0, 4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, -6, -7]])
    other = torch.tensor([[5.0, 4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 6, 7]])
    assert overlap(long_nll, short, other) == (2, 2)
    positive = SPARSE.model_copy(update={"score": "ppmi"})
    assert overlap(long_nll, short, other, positive) == (0, 2)
    assert overlap(long_nll, short, other, positive.model_copy(update={"kappa": 0.4})) == (2, 4)
    assert overlap(long_nll, short, other, SPARSE.model_copy(update={"kappa": 0.25}), choose=authors.sparse)[1] == 2


def test_a_weighting_that_chooses_nothing_is_ranked_at_kappa_0_2():
    long_ce = Weighting(score="long_ce", postprocessing="raw", gamma=3.0)
    assert choosing_weighting(long_ce) == Weighting(score="long_ce", postprocessing="sparse", kappa=0.2, gamma=3.0)
    assert choosing_weighting(SPARSE) is SPARSE
