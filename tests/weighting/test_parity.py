"""The authors' rules against small re-statements of them, and where they differ from ours."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

import tokenweight.authors_compat as authors
from tokenweight.recipes.schema import Weighting
from tokenweight.training.models import head_rounding
from tokenweight.weighting import head, install_head, model_nll, per_token_nll, plan_windows, score_windows
from tokenweight.weighting.step import weighted_step
from tokenweight.weighting.weights import sparse, token_scores, token_weights


def chosen(weights):
    return [row.nonzero()[:, 0].tolist() for row in weights]


def restated(scores, kappa):
    """The authors' choice where nothing is drawn: int(kappa * M) last places of an ascending stable order."""
    columns = len(scores)
    order = sorted(range(columns), key=lambda i: (scores[i], i))
    count = int(kappa * columns)
    return sorted(order[columns - count :] if count else order)


# --- the unfrozen first window ---


def test_the_long_pass_gives_one_column_more_of_the_first_window(make_llama):
    model = make_llama()
    install_head(model)
    plan = plan_windows(61, 16, 12)
    theirs = authors.plan_windows(61, 16, 12)
    assert theirs.starts == plan.starts
    assert theirs.scored_ranges == ((0, 16), *plan.scored_ranges[1:])
    ids = torch.randint(2, 50, (2, 61), generator=torch.Generator().manual_seed(1))
    scored = score_windows(model, ids, theirs, bos_token_id=None, windows_per_batch=9, first_window=False)
    ours = score_windows(model, ids, plan, bos_token_id=None, windows_per_batch=9, first_window=False)
    assert torch.equal(scored, ours)
    weighting = Weighting(postprocessing="dense", lambda_=0.0)
    zero = {
        name: weighted_step(
            model, ids, weighting, sequence_ids=[0, 1], seed=0, short_nll=ours, own_first_window=its_plan
        ).weights
        == 0
        for name, its_plan in (("ours", plan), ("theirs", theirs))
    }
    assert zero["theirs"][:, :16].all()
    assert zero["ours"][:, :15].all()
    assert not zero["ours"][:, 15].any()
    assert torch.equal(zero["ours"][:, 16:], zero["theirs"][:, 16:])


def test_one_window_has_no_further_position():
    assert authors.plan_windows(32, 32, 8).scored_ranges == ((0, 31),)


# --- NLL through bf16 ---


def bf16_cross_entropy(hidden, weight, bias, labels, gradient):
    """NLL and its gradient at bf16 logits, by what the CUDA kernels round: log-probabilities, weights, the gradient."""
    logits = (hidden.float() @ weight.float().t() + (0 if bias is None else bias.float())).bfloat16()
    log_p = logits.double().log_softmax(-1).bfloat16().float()
    d_logits = gradient.bfloat16().float()[:, None] * (log_p.exp() - nn.functional.one_hot(labels, len(weight)))
    return -log_p.gather(1, labels[:, None])[:, 0], d_logits.bfloat16().float()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk_rows", [7, 2048])
def test_bf16_nll_and_gradient_are_those_of_a_bf16_cross_entropy(bias, chunk_rows):
    draw = torch.Generator().manual_seed(3)
    hidden, weight = torch.randn(150, 24, generator=draw).bfloat16(), torch.randn(97, 24, generator=draw).bfloat16()
    offset = torch.randn(97, generator=draw).bfloat16() if bias else None
    labels = torch.randint(0, 97, (150,), generator=draw)
    gradient = torch.rand(150, generator=draw) * 3
    gradient[::3] = 0
    nll, d_logits = bf16_cross_entropy(hidden, weight, offset, labels, gradient)
    leaves = [None if t is None else t.float().requires_grad_() for t in (hidden, weight, offset)]
    ours = per_token_nll(*leaves[:2], labels, bias=leaves[2], chunk_rows=chunk_rows, rounding="nll")
    (ours * gradient).sum().backward()
    assert ours.dtype == torch.float32
    assert torch.equal(ours.detach(), nll)
    torch.testing.assert_close(leaves[0].grad, d_logits @ weight.float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(leaves[1].grad, d_logits.t() @ hidden.float(), rtol=1e-5, atol=1e-4)
    if bias:
        torch.testing.assert_close(leaves[2].grad, d_logits.sum(0), rtol=1e-5, atol=1e-5)


def test_rounded_logits_alone_leave_the_cross_entropy_in_fp32():
    draw = torch.Generator().manual_seed(4)
    hidden, weight = torch.randn(50, 24, generator=draw), torch.randn(97, 24, generator=draw)
    labels = torch.randint(0, 97, (50,), generator=draw)
    expected = nn.functional.cross_entropy((hidden @ weight.t()).bfloat16().float(), labels, reduction="none")
    got = per_token_nll(hidden, weight, labels, rounding="logits")
    torch.testing.assert_close(got, expected)
    assert not torch.equal(got, got.bfloat16().float())
    exact = per_token_nll(hidden, weight, labels)
    assert (got - exact).abs().max() > 1e-3
    reference = nn.functional.cross_entropy(hidden.double() @ weight.double().t(), labels, reduction="none")
    torch.testing.assert_close(exact, reference.float())


def test_the_paper_s_head_rounds_nothing(make_llama):
    assert head_rounding(frozen=False) == head_rounding(frozen=True) == "none"
    assert authors.head_rounding(frozen=False) == "nll"
    assert authors.head_rounding(frozen=True) == "logits"
    model = make_llama()
    ids = torch.randint(2, 50, (1, 20), generator=torch.Generator().manual_seed(5))
    assert install_head(model).rounding == "none"
    exact = model_nll(model, ids)
    install_head(model, "nll")
    rounded = model_nll(model, ids)
    assert torch.equal(rounded, rounded.bfloat16().float())
    assert not torch.equal(rounded, exact)


def test_scoring_on_windows_computes_no_entropy(make_llama, monkeypatch):
    model = make_llama()
    install_head(model)
    ours = head.per_token_nll

    def without_entropy(*given, entropy, **named):
        assert entropy is None
        return ours(*given, entropy=entropy, **named)

    monkeypatch.setattr(head, "per_token_nll", without_entropy)
    score_windows(
        model, torch.zeros(1, 61, dtype=torch.long), plan_windows(61, 16, 12), bos_token_id=None, windows_per_batch=9
    )


# --- the top kappa ---


@pytest.mark.parametrize("kappa", [0.2, 0.4, 0.29, 0.999, 0.001])
def test_the_authors_count_is_cut_off(kappa):
    scores = torch.rand(3, 99, generator=torch.Generator().manual_seed(6)) + 0.1
    got = authors.sparse(scores, kappa, sequence_ids=[0, 1, 2], seed=0)
    assert chosen(got) == [restated(row, kappa) for row in scores.tolist()]
    torch.testing.assert_close(got.mean(dim=1), torch.ones(3))
    assert got.unique().numel() <= 2


def test_counts_at_the_paper_s_size():
    scores = torch.rand(1, 32767)
    for kappa, ours, theirs in ((0.2, 6553, 6553), (0.4, 13107, 13106)):
        assert (sparse(scores, kappa, sequence_ids=[0], seed=0) > 0).sum() == ours
        assert (authors.sparse(scores, kappa, sequence_ids=[0], seed=0) > 0).sum() == theirs


def test_among_equal_scores_the_authors_take_the_last_ones():
    scores = torch.tensor([[1.0, 2.0, 2.0, 2.0, 2.0, 3.0, 1.0, 1.0, 1.0, 1.0]])
    assert chosen(authors.sparse(scores, 0.3, sequence_ids=[0], seed=0)) == [[3, 4, 5]]
    ours = {tuple(chosen(sparse(scores, 0.3, sequence_ids=[i], seed=0))[0]) for i in range(40)}
    assert len(ours) == 6, "any two of the four"


def test_the_authors_draw_among_zeros_where_more_than_the_rest_are_zero():
    scores = torch.zeros(1, 200)
    scores[0, :10] = 1.0
    draws = [chosen(authors.sparse(scores, 0.4, sequence_ids=[i], seed=7))[0] for i in range(60)]
    assert all(draw[:10] == list(range(10)) and len(draw) == 80 for draw in draws)
    counts = torch.bincount(torch.tensor([i for draw in draws for i in draw[10:]]), minlength=200)[10:]
    assert (counts / 60 - 70 / 190).abs().max() < 0.3
    again = authors.sparse(scores, 0.4, sequence_ids=[3], seed=7)
    torch.manual_seed(1)
    assert torch.equal(authors.sparse(scores, 0.4, sequence_ids=[3], seed=7), again)
    assert not torch.equal(authors.sparse(scores, 0.4, sequence_ids=[3], seed=8), again)


def test_a_row_is_chosen_as_in_any_batch():
    """The authors shuffle the zeros of all rows if one row needs it; a row with enough scores does not notice."""
    scores = torch.zeros(2, 100)
    scores[0, :70], scores[1, :5] = torch.rand(70) + 0.1, 1.0
    both = authors.sparse(scores, 0.5, sequence_ids=[4, 5], seed=0)
    for row, sequence in enumerate((4, 5)):
        alone = authors.sparse(scores[row : row + 1], 0.5, sequence_ids=[sequence], seed=0)
        assert torch.equal(alone[0], both[row])
    assert chosen(both)[0] == restated(scores[0].tolist(), 0.5)


def test_the_authors_zeros_are_the_lowest_only_where_no_score_is_negative():
    """Scores without absolute value: the draw is among the lowest scores, the negative ones."""
    scores = torch.cat([torch.full((30,), -1.0), torch.zeros(60), torch.ones(10)])[None]
    got = chosen(authors.sparse(scores, 0.5, sequence_ids=[0], seed=0))[0]
    assert any(i < 30 for i in got), "a negative score is kept while zeros are left"
    assert not any(i < 30 for i in chosen(sparse(scores, 0.5, sequence_ids=[0], seed=0))[0])


def test_parity_selects_the_choice_and_leaves_dense_weights_alone():
    draw = torch.Generator().manual_seed(8)
    long_nll, short_nll = torch.rand(2, 99, generator=draw), torch.rand(2, 99, generator=draw)
    for weighting, same in (
        (Weighting(postprocessing="sparse", kappa=0.29), False),
        (Weighting(postprocessing="dense", lambda_=0.75), True),
        (Weighting(), True),
    ):
        both = [
            token_weights(long_nll, short_nll, weighting, sequence_ids=[0, 1], seed=0, choose=choose)
            for choose in (sparse, authors.sparse)
        ]
        assert torch.equal(*both) == same, weighting


# --- what the paper has and the authors' released code has not ---


def test_shifted_scores_can_be_used():
    long_nll, short_nll = torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([[3.0, 1.0, 2.5]])
    for name, index in (("sppmi", 0), ("snpmi", 1)):
        scores = token_scores(name, long_nll, short_nll)
        assert scores.nonzero()[:, 1].tolist() == [index]
        weights = token_weights(
            long_nll, short_nll, Weighting(score=name, postprocessing="sparse", kappa=0.3), sequence_ids=[0], seed=0
        )
        assert chosen(weights) == [[index]]


def test_options_the_paper_does_not_name_are_unknown():
    """Quotients, softmax and truncation of scores exist in the authors' loss; no recipe can ask for them."""
    for option in ({"comparison": "quotient"}, {"normalization": "softmax"}, {"truncation": 5.0}):
        with pytest.raises(ValidationError, match="Extra inputs"):
            Weighting(**option)


def test_long_ce_leaves_tokens_alone_that_have_no_shorter_context(make_llama):
    model = make_llama()
    install_head(model)
    ids = torch.randint(2, 50, (1, 61), generator=torch.Generator().manual_seed(9))
    weighting, plan = Weighting(score="long_ce", postprocessing="raw"), plan_windows(61, 16, 12)
    step = weighted_step(
        model, ids, weighting, sequence_ids=[0], seed=0, short_nll=torch.rand(1, 60), own_first_window=plan
    )
    assert (step.weights[:, :15] == 1).all()
    assert not (step.weights[:, 15:] == 1).any()
