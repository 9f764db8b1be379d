"""Compiled parts of a model, or its whole layers: the same numbers, and nothing left behind."""

from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

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
