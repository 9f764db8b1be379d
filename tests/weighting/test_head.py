"""The head against float64 autograd, and what it must never hold in memory."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tokenweight.weighting import install_head, model_nll, per_token_nll
from tokenweight.weighting.head import TokenNLLHead

ROWS, WIDTH, VOCABULARY = 203, 24, 97


def problem(bias: bool, dtype=torch.float32, seed=0, sign=1):
    """Operands, labels, and an arbitrary gradient per row: a third of it zero; with sign -1 also negative ones."""
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.randn(ROWS, WIDTH, generator=draw).to(dtype)
    weight = torch.randn(VOCABULARY, WIDTH, generator=draw).to(dtype)
    labels = torch.randint(0, VOCABULARY, (ROWS,), generator=draw)
    gradient = torch.rand(ROWS, generator=draw) * 3
    gradient[1::3] *= sign
    gradient[::3] = 0
    return hidden, weight, torch.randn(VOCABULARY, generator=draw).to(dtype) if bias else None, labels, gradient


def reference(hidden, weight, bias, labels, gradient):
    """NLL and gradients by float64 autograd on materialised logits."""
    inputs = [None if t is None else t.double().requires_grad_() for t in (hidden, weight, bias)]
    logits = nn.functional.linear(*inputs)
    nll = nn.functional.cross_entropy(logits, labels, reduction="none")
    (nll * gradient.double()).sum().backward()
    return nll.detach(), [None if t is None else t.grad for t in inputs]


def relative(ours, exact):
    return ((ours.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("chunk_rows", [1, 7, 64, 203, 2048])
def test_nll_and_gradients_equal_float64_autograd(bias, sign, chunk_rows):
    hidden, weight, offset, labels, gradient = problem(bias, sign=sign)
    exact, gradients = reference(hidden, weight, offset, labels, gradient)
    leaves = [None if t is None else t.clone().requires_grad_() for t in (hidden, weight, offset)]
    nll = per_token_nll(leaves[0], leaves[1], labels, bias=leaves[2], chunk_rows=chunk_rows)
    (nll * gradient).sum().backward()
    assert nll.dtype == torch.float32
    assert relative(nll.detach(), exact) < 1e-6
    for leaf, expected in zip(leaves, gradients, strict=True):
        if leaf is not None:
            assert relative(leaf.grad, expected) < 1e-5


@pytest.mark.skipif(not hasattr(nn.functional, "linear_cross_entropy"), reason="torch before 2.13")
@pytest.mark.parametrize("fused", [False, True])
def test_nll_and_gradients_equal_torch_s_linear_cross_entropy(fused):
    hidden, weight, _, labels, gradient = problem(bias=False, sign=-1)
    found = []
    for head in (nn.functional.linear_cross_entropy, per_token_nll):
        leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
        given = {"fused": fused} if head is per_token_nll else {"reduction": "none"}
        nll = head(*leaves, labels, **given)
        (nll * gradient).sum().backward()
        found.append([nll.detach(), *(leaf.grad for leaf in leaves)])
    for theirs, ours in zip(*found, strict=True):
        assert relative(ours, theirs.double()) < 1e-5


@pytest.mark.parametrize("logits", ["fp32", "bf16"])
def test_bf16_is_no_worse_than_materialised_logits(logits):
    """bf16 operands: against all logits in fp32 at once, and against bf16 logits with fp32 cross entropy."""
    hidden, weight, _, labels, gradient = problem(False, torch.bfloat16, sign=-1)
    exact, (d_hidden, d_weight, _) = reference(hidden, weight, None, labels, gradient)

    ours = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    nll = per_token_nll(*ours, labels)
    (nll * gradient).sum().backward()

    theirs = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    operands = [t.float() for t in theirs] if logits == "fp32" else theirs
    materialised = nn.functional.cross_entropy((operands[0] @ operands[1].t()).float(), labels, reduction="none")
    (materialised * gradient).sum().backward()

    error, theirs_error = (nll - exact).abs().max(), (materialised - exact).abs().max()
    assert error < 1e-4
    assert error <= theirs_error * 2 if logits == "fp32" else error < theirs_error / 100
    assert relative(ours[0].grad, d_hidden) <= relative(theirs[0].grad, d_hidden) * 1.01
    assert relative(ours[1].grad, d_weight) <= relative(theirs[1].grad, d_weight) * 1.01
    assert ours[0].grad.dtype == ours[1].grad.dtype == torch.bfloat16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="products with fp32 output exist on CUDA only")
def test_bf16_on_cuda_keeps_fp32_logits_and_sums():
    hidden, weight, _, labels, gradient = (None if t is None else t.cuda() for t in problem(False, torch.bfloat16))
    hidden, weight = hidden.repeat(1, 4)[:192].contiguous(), weight.repeat(1, 4)[:96].contiguous()
    labels, gradient = labels[:192].clamp_max(95), gradient[:192]
    exact, (d_hidden, d_weight, _) = reference(hidden, weight, None, labels, gradient)
    ours = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    nll = per_token_nll(*ours, labels, chunk_rows=50)
    (nll * gradient).sum().backward()
    assert (nll - exact).abs().max() < 1e-3
    assert relative(ours[0].grad, d_hidden) < 1e-2
    assert relative(ours[1].grad, d_weight) < 1e-2


def test_rows_of_zero_weight_have_exactly_zero_gradient():
    hidden, weight, _, labels, gradient = problem(False)
    hidden.requires_grad_()
    (per_token_nll(hidden, weight, labels) * gradient).sum().backward()
    assert (hidden.grad[gradient == 0] == 0).all()
    assert (hidden.grad[gradient != 0] != 0).any(dim=1).all()


def test_all_weights_zero_give_zero_gradient_everywhere():
    hidden, weight, bias, labels, _ = problem(True)
    leaves = [t.requires_grad_() for t in (hidden, weight, bias)]
    (per_token_nll(hidden, weight, labels, bias=bias) * 0.0).sum().backward()
    assert all((leaf.grad == 0).all() for leaf in leaves)


@pytest.mark.parametrize("bias", [False, True])
def test_entropy_is_that_of_the_prediction_and_a_constant(bias):
    hidden, weight, offset, labels, _ = problem(bias)
    hidden.requires_grad_()
    entropy = torch.empty(ROWS)
    nll = per_token_nll(hidden, weight, labels, bias=offset, chunk_rows=64, entropy=entropy)
    p = nn.functional.linear(hidden.double(), weight.double(), None if offset is None else offset.double()).softmax(-1)
    torch.testing.assert_close(entropy, -(p * p.log()).sum(-1).float(), rtol=1e-4, atol=1e-5)
    assert torch.equal(nll, per_token_nll(hidden, weight, labels, bias=offset, chunk_rows=64))
    assert nll.requires_grad
    assert not entropy.requires_grad


class LargestTensor(TorchDispatchMode):
    """Remembers the largest tensor that any operation returns, and the operations' names."""

    elements = 0

    def __init__(self):
        super().__init__()
        self.operations = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations.add(func.overloadpacket.__name__)
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


@pytest.mark.parametrize("zero_rows", [0, 100])
@pytest.mark.parametrize("bias", [False, True])
def test_all_logits_never_exist(bias, zero_rows):
    """Neither in forward nor in backward, nor kept between them, with all rows or some: at most a chunk's."""
    rows, width, vocabulary = 2048, 8, 4096
    hidden = torch.randn(rows, width, requires_grad=True)
    weight = torch.randn(vocabulary, width, requires_grad=True)
    offset = torch.randn(vocabulary, requires_grad=True) if bias else None
    gradient = torch.ones(rows)
    gradient[:zero_rows] = 0
    labels = torch.randint(0, vocabulary, (rows,))
    kept = []
    with (
        LargestTensor() as forward,
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t),
    ):
        nll = per_token_nll(hidden, weight, labels, bias=offset)
    with LargestTensor() as backward:
        (nll * gradient).sum().backward()
    for seen in (forward, backward):
        assert seen.elements == 512 * vocabulary < rows * vocabulary, "8 MiB of fp32 logits on a CPU"
    assert "exp" not in forward.operations, "the entropy costs time and is for MiLe only"
    assert max(kept) == vocabulary * width, "the weight; hidden states, labels and normalisers are smaller"
    assert len(kept) == 4 + int(bias)
    with LargestTensor() as small_chunks:
        per_token_nll(hidden, weight, labels, bias=offset, chunk_rows=100).sum().backward()
    assert small_chunks.elements == 100 * vocabulary


def test_chunks_have_at_least_64_rows_and_a_small_problem_is_one():
    with LargestTensor() as seen:
        per_token_nll(torch.zeros(100, 1), torch.zeros(2**16, 1), torch.zeros(100, dtype=torch.long))
    assert seen.elements == 64 * 2**16
    hidden, weight, _, labels, _ = problem(False)
    with LargestTensor() as seen:
        per_token_nll(hidden, weight, labels)
    assert seen.elements == ROWS * VOCABULARY


def test_rows_of_zero_gradient_cost_nothing_in_backward():
    rows, width, vocabulary = 400, 4, 500
    hidden, weight = torch.randn(rows, width, requires_grad=True), torch.randn(vocabulary, width, requires_grad=True)
    labels = torch.randint(0, vocabulary, (rows,))
    gradient = torch.zeros(rows)
    gradient[::40] = 1
    with LargestTensor() as forward:
        nll = per_token_nll(hidden, weight, labels)
    with LargestTensor() as some_rows:
        torch.autograd.backward(nll, gradient)
    with LargestTensor() as all_rows:
        torch.autograd.backward(per_token_nll(hidden, weight, labels), torch.ones(rows))
    assert forward.elements == rows * vocabulary
    assert some_rows.elements == 10 * vocabulary
    assert "index_copy_" in some_rows.operations
    assert "index_copy_" not in all_rows.operations, "nothing is copied where every row counts"


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_with_our_head_trains_as_with_its_own(make_llama, tied):
    plain, ours = make_llama(tied), make_llama(tied)
    head = install_head(ours)
    assert isinstance(head, TokenNLLHead)
    assert (ours.lm_head.weight is ours.model.embed_tokens.weight) is tied
    assert install_head(ours) is head
    ids = torch.randint(0, 50, (2, 40), generator=torch.Generator().manual_seed(4))
    loss = plain(input_ids=ids, labels=ids).loss
    loss.backward()
    nll = model_nll(ours, ids)
    assert nll.shape == (2, 39)
    nll.mean().backward()
    torch.testing.assert_close(nll.mean(), loss)
    for (name, expected), (_, parameter) in zip(plain.named_parameters(), ours.named_parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad, rtol=1e-4, atol=1e-6, msg=name)
    assert [n for n, _ in plain.named_parameters()] == [n for n, _ in ours.named_parameters()]
    torch.testing.assert_close(ours(input_ids=ids).logits, plain(input_ids=ids).logits)


def test_model_nll_of_some_columns_is_a_slice_of_all(make_llama):
    model = make_llama()
    install_head(model)
    ids = torch.randint(0, 50, (2, 40), generator=torch.Generator().manual_seed(5))
    everything = model_nll(model, ids)
    assert everything.shape == (2, 39)
    torch.testing.assert_close(model_nll(model, ids, 7, 20), everything[:, 7:20])
    for start, stop in ((-1, 5), (5, 5), (0, 40)):
        with pytest.raises(ValueError, match="positions"):
            model_nll(model, ids, start, stop)


def test_model_nll_keeps_no_cache_and_computes_no_entropy(make_llama, monkeypatch):
    model = make_llama()
    head = install_head(model)
    assert head.training is model.training is False
    seen = []
    model.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs), with_kwargs=True)
    with LargestTensor() as operations:
        model_nll(model, torch.randint(0, 50, (1, 12)))
    assert "sub_" not in operations.operations, "log-probabilities are for the entropy"
    assert seen[0]["use_cache"] is False
    assert head.request is None, "the head gives logits again"


def test_phi_2_keeps_the_bias_of_its_head():
    from transformers import PhiConfig, PhiForCausalLM

    torch.manual_seed(0)
    config = PhiConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    model = PhiForCausalLM(config).eval()
    nn.init.normal_(model.lm_head.bias)
    ids = torch.randint(0, 50, (1, 20))
    expected = nn.functional.cross_entropy(model(input_ids=ids).logits[0, :-1], ids[0, 1:], reduction="none")
    install_head(model)
    torch.testing.assert_close(model_nll(model, ids)[0], expected)


def test_under_autocast_products_are_bf16_and_the_weight_gradient_is_not():
    hidden, weight, _, labels, gradient = problem(False)
    rounded = [hidden.bfloat16(), weight.bfloat16()]
    _, (_, d_weight, _) = reference(*rounded, None, labels, gradient)
    weight.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        nll = per_token_nll(hidden, weight, labels)
    (nll * gradient).sum().backward()
    assert weight.grad.dtype == torch.float32
    assert relative(weight.grad, d_weight) < 2e-2
    assert (nll.detach() - per_token_nll(hidden, weight, labels)).abs().max() > 1e-3, "fp32 operands were used"


@pytest.mark.parametrize(
    ("hidden", "weight", "labels", "word"),
    [((4, 3), (5, 2), (4,), "hidden"), ((4, 3), (5, 3), (3,), "labels"), ((2, 4, 3), (5, 3), (4,), "hidden")],
)
def test_shapes_that_do_not_fit_are_named(hidden, weight, labels, word):
    with pytest.raises(ValueError, match=word):
        per_token_nll(torch.zeros(hidden), torch.zeros(weight), torch.zeros(labels, dtype=torch.long))


@pytest.mark.parametrize("chunk_rows", [0, -1])
def test_chunks_without_rows_are_refused(chunk_rows):
    with pytest.raises(ValueError, match="chunk_rows"):
        per_token_nll(torch.zeros(4, 3), torch.zeros(5, 3), torch.zeros(4, dtype=torch.long), chunk_rows=chunk_rows)


def test_a_model_without_our_head_is_named(make_llama):
    with pytest.raises(ValueError, match="no TokenNLLHead"):
        model_nll(make_llama(), torch.zeros(1, 4, dtype=torch.long))


TINY = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip


def tiny(family, **settings):
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**TINY, **settings})
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("gemma2", {"final_logit_softcapping": 1.0}),
        ("cohere", {"logit_scale": 0.25}),
        ("granite", {"logits_scaling": 4.0}),
        ("recurrent_gemma", {"logits_soft_cap": 1.0, "lru_width": 32}),
        ("falcon_h1", {"lm_head_multiplier": 0.25}),
    ],
)
def test_a_model_that_changes_its_logits_is_refused_by_what_it_gives(family, settings):
    """Whatever its configuration calls that: the model's output is not the tensor that the head returned."""
    model = tiny(family, **settings)
    for _ in range(2):  # refused again: the first time has left nothing
        with pytest.raises(ValueError, match="changes its logits after the head"):
            install_head(model)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama", {}),
        ("mistral", {}),
        ("qwen2", {}),
        ("qwen3", {}),
        ("phi", {}),
        ("phi3", {}),
        ("gemma", {}),
        ("gemma2", {"final_logit_softcapping": None}),
        ("cohere", {"logit_scale": 1.0}),
        ("olmo2", {}),
        ("gpt_neox", {}),
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}),
        ("mixtral", {"num_local_experts": 2}),
        ("mamba", {}),
        ("stablelm", {}),
        ("starcoder2", {}),
    ],
)
def test_the_head_gives_the_nll_of_a_model_s_own_logits(family, settings):
    model, ids = tiny(family, **settings), torch.randint(1, 50, (2, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1].double()
        own = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        install_head(model)
        assert torch.allclose(model_nll(model, ids).double(), own, atol=1e-4)


def test_a_model_is_refused_in_use_if_it_was_not_here_when_its_head_was_installed():
    """As under ZeRO-3, whose parameters lie elsewhere: the first NLL is refused, before a step is made of it."""
    model = tiny("gemma2", final_logit_softcapping=1.0)
    next(model.parameters()).ds_id = 0
    install_head(model)
    with pytest.raises(ValueError, match="changes its logits after the head"):
        model_nll(model, torch.ones(1, 4, dtype=torch.long))


def test_logits_changed_in_place_are_refused(make_llama):
    model = make_llama()
    forward = model.forward

    def scaled(**inputs):
        output = forward(**inputs)
        output.logits.mul_(0.5)
        return output

    model.forward = scaled
    with pytest.raises(ValueError, match="changes its logits after the head"):
        install_head(model)


def test_weights_that_are_not_finite_are_named(make_llama):
    model = make_llama()
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        install_head(model)
