"""One step from token ids to loss: what zero weight means for the gradient, and whose columns are whose."""

import pytest
import torch

from tokenweight.recipes.schema import Weighting
from tokenweight.weighting import install_head, model_nll, plan_windows, score_windows, token_weights, weighted_step
from tokenweight.weighting import step as step_module

PLAN = plan_windows(48, 16, 12)


@pytest.fixture
def model(make_llama):
    model = make_llama(tied=False)
    install_head(model)
    return model


def sequences(rows=2):
    return torch.randint(2, 40, (rows, 48), generator=torch.Generator().manual_seed(11))


def test_zero_weight_gives_exactly_zero_gradient_through_the_whole_model(model):
    """Sparse weights on columns 5..14 only: rows of the head, and the embeddings of later tokens, get exactly 0."""
    ids = sequences()
    ids[:, 20:] = torch.randint(40, 50, (2, 28), generator=torch.Generator().manual_seed(12))  # tokens of their own
    short_nll = model_nll(model, ids).detach()
    short_nll[:, 5:15] += torch.linspace(1, 2, 10)
    seen = []
    model.lm_head.register_forward_pre_hook(lambda _, inputs: inputs[0].register_hook(seen.append) and None)
    weighting = Weighting(postprocessing="sparse", kappa=10 / 47)
    step = weighted_step(model, ids, weighting, sequence_ids=[0, 1], seed=0, short_nll=short_nll)
    assert (step.weights > 0).nonzero()[:, 1].tolist() == [*range(5, 15), *range(5, 15)]
    step.loss.backward()
    (d_hidden,) = seen
    assert d_hidden.shape == (2, 48, 32)
    touched = (d_hidden != 0).any(dim=-1)
    assert touched[:, 5:15].all()
    assert not touched[:, :5].any()
    assert not touched[:, 15:].any()
    d_embedding = model.model.embed_tokens.weight.grad
    assert (d_embedding[40:] == 0).all(), "tokens that stand behind every weighted prediction"
    assert (d_embedding[ids[:, :15].unique()] != 0).any(dim=1).all()


def test_all_but_one_token_of_zero_weight_is_that_token_s_gradient(model):
    ids = sequences(1)
    short_nll = model_nll(model, ids).detach()
    short_nll[0, 30] += 5
    weighting = Weighting(postprocessing="sparse", kappa=1e-9)
    weighted_step(model, ids, weighting, sequence_ids=[0], seed=0, short_nll=short_nll).loss.backward()
    got = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model_nll(model, ids)[0, 30].backward()
    for ours, parameter in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("score", ["abs_pmi", "mile", "focal"])
def test_a_step_is_its_parts(model, score):
    ids = sequences()
    weighting = Weighting(score=score, postprocessing="sparse", kappa=0.3)
    short_nll = score_windows(model, ids, PLAN, bos_token_id=None, windows_per_batch=9, first_window=False)
    step = weighted_step(model, ids, weighting, sequence_ids=[4, 7], seed=1, short_nll=short_nll, own_first_window=PLAN)
    logits = model(input_ids=ids).logits[:, :-1].detach()
    log_p = logits.log_softmax(-1)
    long_nll = -log_p.gather(2, ids[:, 1:, None])[:, :, 0]
    entropy = -(log_p.exp() * log_p).sum(-1)
    own = PLAN.with_own_context(short_nll, long_nll)
    weights = token_weights(long_nll, own, weighting, sequence_ids=[4, 7], seed=1, long_entropy=entropy)
    torch.testing.assert_close(step.nll, long_nll, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(step.weights, weights)
    torch.testing.assert_close(step.loss.detach(), (weights * long_nll).sum() / (2 * 47))
    assert step.loss.requires_grad
    assert not step.nll.requires_grad
    if score == "abs_pmi":
        assert (step.weights[:, :15] == 0).all()


def test_a_frozen_scorer_keeps_its_first_window(model):
    ids = sequences()
    short_nll = model_nll(model, ids).detach() + 1
    weighting = Weighting(postprocessing="dense", lambda_=0.0)
    step = weighted_step(model, ids, weighting, sequence_ids=[0, 1], seed=0, short_nll=short_nll)
    torch.testing.assert_close(step.weights, torch.ones(2, 47), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weighting", [Weighting(score="mile"), Weighting(postprocessing="dense", lambda_=0.5)])
def test_the_entropy_is_computed_for_mile_only(model, monkeypatch, weighting):
    ours, asked = step_module.model_nll, []
    monkeypatch.setattr(step_module, "model_nll", lambda *given, **named: asked.append(named) or ours(*given, **named))
    ids = sequences()
    weighted_step(model, ids, weighting, sequence_ids=[0, 1], seed=0, short_nll=torch.rand(2, 47))
    assert [named["entropy"] for named in asked] == [None]
