"""Scores and postprocessing: what the equations say, and the desiderata of the paper's Table 2."""

import math
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tokenweight.recipes.schema import Weighting
from tokenweight.weighting import token_weights, weighted_nll
from tokenweight.weighting.scores import SCORES as KNOWN
from tokenweight.weighting.weights import dense, sparse, token_scores

LONG = torch.tensor([[1.0, 4.0, 2.0, 0.5, 3.0]])
SHORT = torch.tensor([[3.0, 1.0, 2.0, 1.0, 3.5]])  # D = -2, 3, 0, -0.5, -0.5


def weights(weighting, long_nll=LONG, short_nll=SHORT, seed=0, ids=None, **more):
    ids = list(range(len(long_nll))) if ids is None else ids
    return token_weights(long_nll, short_nll, weighting, sequence_ids=ids, seed=seed, **more)


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ("abs_pmi", [2, 3, 0, 0.5, 0.5]),
        ("ppmi", [2, 0, 0, 0.5, 0.5]),
        ("npmi", [0, 3, 0, 0, 0]),
        ("sppmi", [2 - math.log(2), 0, 0, 0, 0]),
        ("snpmi", [0, 3 - math.log(2), 0, 0, 0]),
        ("excess", [-2, 3, 0, -0.5, -0.5]),
        ("long_ce", [5, math.exp(-3), 1, math.exp(0.5), math.exp(0.5)]),
        ("focal", [(1 - math.exp(-x)) ** 2 for x in (1, 4, 2, 0.5, 3)]),
        ("mile", [1.5, 2, 1, 3, 1.1]),
    ],
)
def test_scores_are_those_of_the_table(score, expected):
    entropy = torch.tensor([[0.5, 1.0, 0.0, 2.0, 0.1]])
    scores = token_scores(score, LONG, SHORT, long_entropy=entropy)
    torch.testing.assert_close(scores, torch.tensor([expected], dtype=torch.float32))


def test_shift_cap_and_exponent_can_be_set():
    torch.testing.assert_close(token_scores("sppmi", LONG, SHORT, shift_k=3.0)[0, 0], torch.tensor(2 - math.log(3)))
    assert token_scores("long_ce", LONG, SHORT, gamma=2.0).max() == pytest.approx(2.0)
    torch.testing.assert_close(token_scores("focal", LONG, None, gamma=1.0), 1 - torch.exp(-LONG))
    torch.testing.assert_close(token_scores("mile", LONG, None, long_entropy=LONG, gamma=3.0), (1 + LONG) ** 3)
    assert token_scores("long_ce", LONG, LONG + 1e4).isfinite().all(), "the cap acts before the exponential"
    rounded = torch.tensor([[-1e-7]])  # the NLL of a certain token, rounded below zero
    assert token_scores("focal", rounded, None, gamma=0.5) == 0


def test_dense_weights_are_equation_8():
    expected = [0.75 + 0.25 * 5 * score / 6 for score in (2, 3, 0, 0.5, 0.5)]
    got = weights(Weighting(postprocessing="dense", lambda_=0.75))
    torch.testing.assert_close(got, torch.tensor([expected]))


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1e-3, 1.0, 1e30, 1e38])
def test_dense_weights_do_not_depend_on_the_scale_of_the_scores(scale):
    scores = torch.tensor([[3.0, 3.0, 0.0, 3.0]]) * scale
    torch.testing.assert_close(dense(scores, 0.0), torch.tensor([[4.0, 4.0, 0.0, 4.0]]) / 3)


def test_sparse_weights_are_the_highest_scores():
    assert weights(Weighting(postprocessing="sparse", kappa=0.4)).tolist() == [[2.5, 2.5, 0, 0, 0]]


@pytest.mark.parametrize(("kappa", "kept"), [(0.2, 819), (0.4, 1638), (1e-9, 1), (1.0, 4095)])
def test_sparse_keeps_the_rounded_share_of_all_predictions(kappa, kept):
    got = sparse(torch.rand(1, 4095), kappa, sequence_ids=[0], seed=0)
    assert (got > 0).sum() == kept
    assert got.max() == torch.tensor(4095 / kept)


SCORES = tuple(KNOWN)


def constructible(score, lambda_, kappa):
    """Every weighting that construction allows for a score function."""
    needed = {"threshold": 8} if "threshold" in KNOWN[score].inputs else {}
    for fields in (
        {"postprocessing": "dense", "lambda": lambda_},
        {"postprocessing": "sparse", "kappa": kappa},
        {"postprocessing": "raw"},
    ):
        with suppress(ValidationError):
            yield Weighting(score=score, **needed, **fields)


def test_which_scores_go_with_which_postprocessing():
    allowed = {score: {w.postprocessing for w in constructible(score, 0.5, 0.5)} for score in SCORES}
    own_weights = {score: {"dense", "sparse", "raw"} for score in ("long_ce", "focal", "mile")}
    pmi = {score: {"dense", "sparse"} for score in ("abs_pmi", "ppmi", "npmi", "sppmi", "snpmi")}
    assert allowed == {**pmi, **own_weights, "excess": {"sparse"}, "exact": {"raw"}}


@st.composite
def nlls(draw):
    """Long and short NLL [2, M]: random, identical, far apart, hardly apart, certain; one column and more."""
    columns = draw(st.sampled_from([1, 2, 97]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    size = draw(st.sampled_from([0.0, 1e-6, 1.0, 12.0, 1e4]))
    long_nll = size * torch.rand(2, columns, generator=generator)
    difference = draw(st.sampled_from([0.0, 1e-44, 1e-30, 1e-3, 1.0, 1e3, 1e30]))
    short_nll = long_nll + difference * torch.rand(2, columns, generator=generator)
    if draw(st.booleans()):
        long_nll, short_nll = short_nll, long_nll
    if draw(st.booleans()):  # one token differs from all others
        short_nll[:, 0] = long_nll[:, 0] + 7
    return long_nll, short_nll


@settings(max_examples=60)
@given(
    nll=nlls(),
    lambda_=st.sampled_from([0.0, 0.05, 0.75, 1.0]),
    kappa=st.sampled_from([1e-9, 0.2, 0.4, 0.99, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_weights_are_non_negative_finite_and_average_to_one(nll, lambda_, kappa, seed):
    long_nll, short_nll = nll
    entropy = long_nll.clamp_max(math.log(128_256))  # a prediction's entropy is at most the vocabulary's
    for weighting in (w for score in SCORES for w in constructible(score, lambda_, kappa)):
        got = weights(weighting, long_nll, short_nll, seed=seed, long_entropy=entropy)
        assert got.dtype == torch.float32
        assert got.shape == long_nll.shape
        assert got.isfinite().all()
        assert (got >= 0).all()
        if weighting.postprocessing != "raw":
            torch.testing.assert_close(got.double().mean(dim=1), torch.ones(2).double(), rtol=1e-5, atol=0)
        if weighting.postprocessing == "sparse":
            assert ((got == 0) | (got == got.max())).all()


@pytest.mark.parametrize("score", [name for name, one in KNOWN.items() if one.postprocessings != ("raw",)])
def test_lambda_1_and_kappa_1_equal_uniform_to_the_bit(score):
    long_nll, short_nll = torch.rand(2, 333) * 9, torch.rand(2, 333) * 9
    ones = weights(Weighting(), long_nll, short_nll)
    assert torch.equal(ones, torch.ones(2, 333))
    pairs = [w for w in constructible(score, 1.0, 1.0) if w.postprocessing != "raw"]
    assert pairs
    for weighting in pairs:
        assert torch.equal(weights(weighting, long_nll, short_nll, long_entropy=long_nll), ones)


@pytest.mark.parametrize("score", SCORES)
def test_a_batch_is_weighted_as_its_sequences_are_alone(score):
    draw = torch.Generator().manual_seed(1)
    long_nll, short_nll = torch.rand(4, 50, generator=draw), torch.rand(4, 50, generator=draw)
    short_nll[:, ::2] = long_nll[:, ::2]  # many ties
    ids = [5, 9, 7, 2**63 + 11]
    for weighting in constructible(score, 0.1, 0.7):
        together = weights(weighting, long_nll, short_nll, ids=ids, seed=3, long_entropy=long_nll)
        for row, sequence in enumerate(ids):
            one = slice(row, row + 1)
            alone = weights(
                weighting, long_nll[one], short_nll[one], ids=[sequence], seed=3, long_entropy=long_nll[one]
            )
            assert torch.equal(alone[0], together[row])
        back = weights(
            weighting, long_nll.flip(0), short_nll.flip(0), ids=ids[::-1], seed=3, long_entropy=long_nll.flip(0)
        )
        assert torch.equal(back.flip(0), together)


def test_models_that_agree_everywhere_give_uniform_dense_weights():
    got = weights(Weighting(postprocessing="dense", lambda_=0.0), LONG, LONG)
    assert torch.equal(got, torch.ones_like(LONG))


def test_equal_contexts_are_never_selected_while_others_suffice():
    """Unfrozen: the first n - 1 columns have D = 0 exactly."""
    long_nll = torch.rand(1, 1000)
    short_nll = long_nll.clone()
    short_nll[:, 400:] += 0.001 * torch.rand(1, 600) + 1e-4
    for kappa, from_the_zeros in ((0.2, 0), (0.6, 0), (0.7, 100)):
        got = weights(Weighting(postprocessing="sparse", kappa=kappa), long_nll, short_nll)
        assert (got[:, :400] > 0).sum() == from_the_zeros
        assert (got[:, 400:] > 0).sum() == round(kappa * 1000) - from_the_zeros


def test_shifted_scores_are_filled_at_random_from_their_zeros():
    """Section 5.3: where 85-95 % of the scores are zero, the rest is sampled."""
    long_nll, short_nll = torch.zeros(1, 1000), torch.zeros(1, 1000)
    short_nll[:, :50] = 5.0
    weighting = Weighting(score="sppmi", postprocessing="sparse", kappa=0.4)
    draws = torch.stack([weights(weighting, long_nll, short_nll, ids=[i])[0] > 0 for i in range(200)])
    assert (draws.sum(1) == 400).all()
    assert draws[:, :50].all()
    share = draws[:, 50:].float().mean(0)
    assert (share - 350 / 950).abs().max() < 0.16
    assert (draws[:, 50:525].sum(1).float().mean() - 175).abs() < 3


def test_ties_depend_on_seed_and_sequence_and_on_nothing_else():
    zeros = torch.zeros(1, 500)
    weighting = Weighting(postprocessing="sparse", kappa=0.2)
    first = weights(weighting, zeros, zeros, seed=3, ids=[17])
    torch.manual_seed(99)
    torch.rand(10)
    assert torch.equal(weights(weighting, zeros, zeros, seed=3, ids=[17]), first)
    assert not torch.equal(weights(weighting, zeros, zeros, seed=4, ids=[17]), first)
    assert not torch.equal(weights(weighting, zeros, zeros, seed=3, ids=[18]), first)
    chosen = (first > 0).nonzero()[:, 1]
    assert chosen.min() < 50, "spread over the sequence, not taken from one end"
    assert chosen.max() > 450


def test_exact_gives_each_doubling_of_effective_context_its_part():
    positions = [[1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]]
    flat = [p for row in positions for p in row]
    beyond = [p for p in flat if p >= 3]
    bucket = {p: math.floor(math.log2(p / 3)) for p in beyond}
    count = {b: sum(bucket[p] == b for p in beyond) for b in set(bucket.values())}
    expected = [
        [1 + 0.5 * len(beyond) / (len(count) * count[bucket[p]]) if p >= 3 else 1 for p in row] for row in positions
    ]
    chosen = Weighting(score="exact", postprocessing="raw", threshold=3, gamma=0.5)
    position, nll = torch.tensor(positions), torch.rand(2, 13)
    got = weights(chosen, nll, None, position=position)
    torch.testing.assert_close(got, torch.tensor(expected))
    assert got[position >= 3].mean() == pytest.approx(1.5)
    counts = 7 * position.flatten().bincount()  # of all that training reads: here seven times as much of the same
    torch.testing.assert_close(weights(chosen, nll[1:], None, position=position[1:], position_counts=counts), got[1:])
    assert weights(chosen.model_copy(update={"threshold": 14}), nll, None, position=position).eq(1).all()
    assert "threshold" not in Weighting().model_dump(), "what has none keeps its fingerprint"
    with pytest.raises(ValidationError, match=r"score 'exact' needs threshold"):
        Weighting(score="exact", postprocessing="raw")


def test_raw_scores_are_the_weights():
    got = weights(Weighting(score="long_ce", postprocessing="raw"))
    torch.testing.assert_close(got, token_scores("long_ce", LONG, SHORT))
    assert weights(Weighting(score="long_ce", postprocessing="raw"), LONG, LONG).eq(1).all()


def test_weights_are_constants():
    long_nll = LONG.clone().requires_grad_()
    got = weights(Weighting(postprocessing="dense", lambda_=0.5), long_nll)
    assert not got.requires_grad
    weights_with_gradient = got.clone().requires_grad_()
    weighted_nll(long_nll, weights_with_gradient).backward()
    torch.testing.assert_close(long_nll.grad, got / 5)
    assert weights_with_gradient.grad is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_are_fp32_whatever_comes_in(dtype):
    weighting = Weighting(postprocessing="sparse", kappa=0.4)
    got = weights(weighting, LONG.to(dtype), SHORT.to(dtype))
    assert got.dtype == torch.float32
    assert torch.equal(got, weights(weighting))


@pytest.mark.parametrize("token", ["easy", "long-range", "learnable", "hard"])
def test_desiderata_of_table_2(token):
    """Confident: NLL 0.05; not confident: NLL 5. Background: tokens whose contexts differ a little."""
    long_nll, short_nll = torch.full((1, 100), 2.0), torch.full((1, 100), 2.0)
    short_nll[:, ::2] += 0.5
    long_nll[0, 50], short_nll[0, 50], high = {
        "easy": (0.05, 0.05, False),
        "long-range": (0.05, 5.0, True),
        "learnable": (5.0, 0.05, True),
        "hard": (5.0, 5.0, False),
    }[token]
    for weighting in (Weighting(postprocessing="dense", lambda_=0.75), Weighting(postprocessing="sparse", kappa=0.2)):
        got = weights(weighting, long_nll, short_nll)
        assert (got[0, 50] > got.mean()) == high
        assert got[0, 50] == (got.max() if high else got.min())


def test_variants_without_the_absolute_value_miss_one_desideratum_each():
    long_range, learnable = torch.tensor([[0.05, 2.0]]), torch.tensor([[5.0, 2.0]])
    assert token_scores("npmi", long_range, torch.tensor([[5.0, 2.0]]))[0, 0] == 0
    assert token_scores("ppmi", learnable, torch.tensor([[0.05, 2.0]]))[0, 0] == 0


def test_loss_is_the_mean_of_weight_times_nll():
    nll, w = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[2.0, 0.0], [1.0, 1.0]])
    assert weighted_nll(nll, w) == pytest.approx((1.0 + 3.5) / 2)
    with pytest.raises(ValueError, match=r"\[B, M\]"):
        weighted_nll(nll, w[:, :1])
    with pytest.raises(ValueError, match=r"\[B, M\]"):
        weighted_nll(nll[0], w[0])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="short_nll has shape"):
        weights(Weighting(), LONG, SHORT[:, :3])
    with pytest.raises(FloatingPointError, match="long_nll is not finite"):
        weights(Weighting(), LONG * math.nan)
    with pytest.raises(FloatingPointError, match="short_nll is not finite"):
        weights(Weighting(), LONG, torch.where(SHORT == 2, math.inf, SHORT))
    with pytest.raises(ValueError, match="needs short_nll"):
        weights(Weighting(postprocessing="sparse", kappa=0.5), LONG, None)
    with pytest.raises(ValueError, match="long_entropy"):
        weights(Weighting(score="mile", postprocessing="dense", lambda_=0.5))
    with pytest.raises(ValueError, match="sequence ids"):
        weights(Weighting(postprocessing="sparse", kappa=0.5), ids=[1, 2])


@pytest.mark.parametrize(
    "fields",
    [
        {"postprocessing": "dense"},
        {"postprocessing": "sparse", "kappa": 0.0},
        {"postprocessing": "dense", "lambda": 2.0},
        {"postprocessing": "raw", "score": "abs_pmi"},
        {"postprocessing": "dense", "lambda": 0.5, "score": "excess"},
        {"kappa": 0.5},
    ],
)
def test_impossible_weightings_are_refused_at_construction(fields):
    with pytest.raises(ValidationError):
        Weighting(**fields)
