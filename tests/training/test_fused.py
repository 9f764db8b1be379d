"""Compiled parts of a model, or its whole layers: the same numbers, and nothing left behind."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch.nn.attention import SDPBackend
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

from tokenweight.training import kernels
from tokenweight.training.kernels import compiled_layers, fused_elementwise
from tokenweight.weighting import install_head, model_nll


def step_of_a_model() -> tuple[LlamaForCausalLM, Callable[[], tuple[torch.Tensor, list[torch.Tensor]]]]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config).train()
    install_head(model)
    ids = torch.randint(0, 50, (2, 40), generator=torch.Generator().manual_seed(1))

    def step():
        model.zero_grad()
        nll = model_nll(model, ids)
        nll.mean().backward()
        return nll.detach(), [p.grad.clone() for p in model.parameters()]

    return model, step


def test_compiled_layers_give_the_same_nll_and_gradients():
    model, step = step_of_a_model()
    nll, gradients = step()
    with compiled_layers(model):
        assert all(layer._compiled_call_impl is not None for layer in model.model.layers)
        compiled_nll, compiled_gradients = step()
    torch.testing.assert_close(compiled_nll, nll)
    for ours, expected in zip(compiled_gradients, gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(step()[0], nll, rtol=0, atol=0)


def test_fused_parts_give_the_same_nll_and_gradients():
    model, step = step_of_a_model()
    rotary, forward = modeling_llama.apply_rotary_pos_emb, model.model.norm.forward.__func__
    nll, gradients = step()
    mlp = model.model.layers[0].mlp
    mlp_forward = mlp.forward.__func__
    with fused_elementwise(model):
        assert modeling_llama.apply_rotary_pos_emb is not rotary
        assert model.model.norm.forward.__func__ is not forward
        assert mlp.forward.__func__ is not mlp_forward
        assert model.lm_head.fused
        fused_nll, fused_gradients = step()
    torch.testing.assert_close(fused_nll, nll)
    for ours, expected in zip(fused_gradients, gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
    assert modeling_llama.apply_rotary_pos_emb is rotary
    assert model.model.norm.forward.__func__ is forward
    assert mlp.forward.__func__ is mlp_forward
    torch.testing.assert_close(step()[0], nll, rtol=0, atol=0)
    assert not model.lm_head.fused


def test_the_norm_of_bf16_is_computed_in_fp32_as_transformers_does():
    norm = modeling_llama.LlamaRMSNorm(64, eps=1e-5).bfloat16()
    x = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    torch.testing.assert_close(kernels._rms_norm(x, norm.weight, norm.variance_epsilon), norm(x), rtol=0, atol=0)


def test_cudnn_attends_first_on_hopper_and_torch_chooses_elsewhere(monkeypatch):
    asked = []
    monkeypatch.setattr(kernels, "sdpa_kernel", lambda order, set_priority: asked.append((order[0], set_priority)) or 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for capability, is_hopper in (((9, 0), True), ((10, 0), True), ((8, 9), False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        assert (kernels.attention_kernels() == 1) is is_hopper
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert isinstance(kernels.attention_kernels(), nullcontext)
    assert asked == [(SDPBackend.CUDNN_ATTENTION, True)] * 2
