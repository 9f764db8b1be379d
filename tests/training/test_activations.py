"""Activation checkpointing: which operations run again in the backward pass."""

from collections import Counter
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from tokenweight.errors import UserError
from tokenweight.training.kernels import attention_kernels, checkpoint_activations
from tokenweight.weighting import install_head, model_nll

LAYERS = 3


class Counted(TorchDispatchMode):
    """How often each operation is called."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def step(checkpointing, hook=None, attention_bias=False, **options):
    """(attention forward passes, other matrix products) of a step, and its gradients."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, attn_implementation="sdpa",
        attention_bias=attention_bias,
    )  # fmt: skip
    model = LlamaForCausalLM(config).train()
    checkpoint_activations(model, checkpointing, **options)
    install_head(model)
    if hook is not None:
        for module in model.model.layers.modules():
            module.register_forward_pre_hook(hook)
    ids = torch.randint(0, 50, (2, 40), generator=torch.Generator().manual_seed(1))
    with Counted() as counted:
        model_nll(model, ids).mean().backward()
    attention = sum(n for name, n in counted.calls.items() if name.endswith("attention_for_cpu"))
    return attention, counted.calls["mm"] + counted.calls["addmm"], [p.grad for p in model.parameters()]


@pytest.mark.parametrize(
    ("checkpointing", "passes"), [("none", 1), ("keep_attention", 1), ("keep_projections", 1), ("full", 2)]
)
def test_what_runs_again(checkpointing, passes):
    plain, plain_products, gradients = step("none")
    attention, products, checked = step(checkpointing)
    assert (plain, attention) == (LAYERS, passes * LAYERS)
    again = {"none": 0, "keep_projections": 2, "keep_attention": 6, "full": 6}[checkpointing]  # gate, up; q, k, v, o
    assert products - plain_products == again * LAYERS
    for ours, expected in zip(checked, gradients, strict=True):
        torch.testing.assert_close(ours, expected)


def test_projections_with_a_bias_are_kept_too():
    _, products, _ = step("keep_projections", attention_bias=True)
    assert products == step("none", attention_bias=True)[1] + 2 * LAYERS  # gate and up have none


@pytest.mark.parametrize("checkpointing", ["keep_attention", "keep_projections"])
def test_what_hooks_do_may_differ_in_backward(checkpointing):
    """As in ZeRO-3, whose hooks gather only those parameters that are not there yet."""
    calls = Counter()

    @torch.no_grad()
    def gather(module, _):
        calls[module] += 1
        if calls[module] > 1:
            torch.empty(3).fill_(1.0).flatten()

    attention, _, gradients = step(checkpointing, gather)
    assert attention == LAYERS
    assert max(calls.values()) == 2
    for ours, expected in zip(gradients, step("none")[2], strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=0)


@pytest.mark.parametrize("checkpointing", ["full", "keep_attention"])
def test_the_inputs_of_layers_may_be_in_the_hosts_memory(checkpointing, monkeypatch):
    copied = []

    def to_host(tensor):
        copied.append(tensor.shape)
        return tensor.clone()

    hooks = partial(torch.autograd.graph.saved_tensors_hooks, to_host, lambda kept: kept)
    monkeypatch.setattr(transformers.modeling_utils, "save_on_cpu", lambda **_: hooks())
    _, _, gradients = step(checkpointing, offload=True)
    assert Counter(copied) == {(2, 40, 32): LAYERS}
    for ours, expected in zip(gradients, step("none")[2], strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=0)


def test_at_8k_tokens_gradients_are_those_of_all_logits(monkeypatch):
    """What long sequences are computed with (benchmarks/long_context.py), against cross entropy over the logits."""
    config = LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=8192, attn_implementation="sdpa",
    )  # fmt: skip
    weights = torch.rand(1, 8191, generator=torch.Generator().manual_seed(2))
    found = []
    for plain in (True, False):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).train()
        ids = torch.randint(0, 300, (1, 8192), generator=torch.Generator().manual_seed(1))
        if plain:
            logits = model(ids).logits[0, :-1]
            nll = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")[None]
        else:
            monkeypatch.setattr(transformers.modeling_utils, "save_on_cpu", lambda **_: nullcontext())
            checkpoint_activations(model, "keep_attention", offload=True)
            install_head(model)
            nll = model_nll(model, ids)
        (nll * weights).mean().backward()
        found.append([p.grad for p in model.parameters()])
    for ours, expected in zip(*reversed(found), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-7)


def test_a_transformers_that_cannot_offload_is_named():
    model = SimpleNamespace(activation_checkpointing_enable=lambda arguments: None)
    with pytest.raises(
        UserError, match=r"offload_activations: transformers .* cannot; run `pip install -U transformers`"
    ):
        checkpoint_activations(model, "full", offload=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="attention kernels are chosen on GPUs only")
def test_attention_on_a_gpu_is_cudnns_where_that_is_fastest():
    query = torch.randn(1, 2, 128, 64, device="cuda", dtype=torch.bfloat16)
    with attention_kernels(), Counted() as counted:
        torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    fastest = torch.cuda.get_device_capability() >= (9, 0)
    assert (counted.calls["_scaled_dot_product_cudnn_attention"] == 1) == fastest
