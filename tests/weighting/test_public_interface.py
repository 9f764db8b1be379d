"""The small public interface: names and signatures that others build on."""

import inspect
import subprocess
import sys

import pytest
import torch

import tokenweight.weighting as public
from tokenweight.recipes.schema import Weighting


def parameters(function):
    """Names, with a * before the first that is by keyword only, and defaults."""
    listed, starred = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            listed.append("*")
            starred = True
        default = (
            ""
            if parameter.default is parameter.empty
            else f"={getattr(parameter.default, '__name__', parameter.default)}"
        )
        listed.append(parameter.name + default)
    return ", ".join(listed)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plan_windows", "long_tokens, short_tokens, stride_tokens"),
        (
            "token_weights",
            "long_nll, short_nll, weighting, *, sequence_ids, seed, long_entropy=None, choose=sparse, scored=None, "
            "position=None, position_counts=None",
        ),
        (
            "per_token_nll",
            "hidden, weight, labels, *, bias=None, chunk_rows=2048, rounding=none, entropy=None, fused=False",
        ),
        ("weighted_nll", "nll, weights"),
        (
            "add_token_weighting",
            "trainer, weighting, *, short_tokens, stride_tokens, bos_token_id=None, windows_per_batch=4, seed=0",
        ),
    ],
)
def test_signatures_are_those_that_were_promised(name, expected):
    assert parameters(getattr(public, name)) == expected
    assert inspect.getdoc(getattr(public, name))


def test_the_parts_fit_together_without_any_pipeline():
    """Windows by hand, NLL by the head, weights, loss: only tensors."""
    plan = public.plan_windows(long_tokens=12, short_tokens=6, stride_tokens=3)
    assert plan.starts == (0, 3, 6)
    assert plan.scored_ranges == ((0, 5), (5, 8), (8, 11))
    hidden, weight = torch.randn(22, 4), torch.randn(9, 4, requires_grad=True)
    nll = public.per_token_nll(hidden, weight, torch.randint(0, 9, (22,))).view(2, 11)
    weighting = Weighting(postprocessing="dense", lambda_=0.25)
    weights = public.token_weights(nll, nll.detach() + torch.rand(2, 11), weighting, sequence_ids=[0, 1], seed=0)
    assert (weights.shape, weights.dtype) == ((2, 11), torch.float32)
    public.weighted_nll(nll, weights).backward()
    assert weight.grad.isfinite().all()


def test_the_public_interface_is_lazy_and_complete():
    for name in public.__all__:
        assert callable(getattr(public, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = public.nothing
    script = "import sys, tokenweight.weighting; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
