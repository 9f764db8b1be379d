"""Scoring with float8 products: the linear layers of a model's blocks in e4m3, at up to twice the speed of bf16.

Scores only rank and weigh tokens, so the scoring pass can bear rounding that training could not. How much the ranking
bears is measured in every run (tokenweight.fp8.Fp8Scoring).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tokenweight.errors import UserError

E4M3 = torch.float8_e4m3fn
E4M3_MAX = torch.finfo(E4M3).max  # 448
SMALLEST = 2.0**-100  # a tensor whose values are all smaller is zero
SIDE_MULTIPLE = 16  # of a weight's both sides: what torch._scaled_mm takes on GPUs
ADA = (8, 9)  # the first compute capability with float8 products


def check_fp8(device: torch.device) -> None:
    """Raise UserError where `device` cannot multiply float8 matrices. A CPU can (by torch's own slow kernel)."""
    if device.type == "cpu":
        return
    there = device.type == "cuda" and torch.cuda.is_available() and torch.version.hip is None
    if not there or torch.cuda.get_device_capability(device) < ADA:
        name = torch.cuda.get_device_name(device) if there else device.type
        raise UserError(
            f"scorer.precision: fp8 needs an NVIDIA GPU of compute capability 8.9 or more (Ada, Hopper), not {name}; "
            "set it to 'training'"
        )


@contextmanager
def fp8_linears(model: nn.Module, *, fast_accumulation: bool = False) -> Iterator[list[str]]:
    """While open, the linear layers of a model multiply in float8 e4m3; gives their names. For passes without gradient.

    Input and weight get one scale each, by their largest absolute value at that moment; products accumulate in fp32
    and come out in the precision that they would have had. With `fast_accumulation` the GPU keeps its tensor cores'
    shorter accumulator for all of a sum instead of adding to fp32 from time to time: faster, less exact. Embeddings,
    the head (a TokenNLLHead, no plain nn.Linear) and layers with a side that is no multiple of 16 stay as they are.
    Weights are rounded inside `forward`, the only place where ZeRO-3 has them. Everything is as it was afterwards.
    """
    rounded_input = _rounding_once()
    layers = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and not (module.in_features % SIDE_MULTIPLE or module.out_features % SIDE_MULTIPLE)
    }
    before = {name: module.__dict__.get("forward") for name, module in layers.items()}

    def forward(self: nn.Linear, x: Tensor) -> Tensor:
        return _fp8_linear(x, self.weight, self.bias, rounded_input, fast_accumulation)

    try:
        for module in layers.values():
            module.__dict__["forward"] = MethodType(forward, module)
        yield list(layers)
    finally:
        for name, module in layers.items():
            del module.__dict__["forward"]
            if before[name] is not None:
                module.__dict__["forward"] = before[name]


def _fp8_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    rounded_input: Callable[[Tensor], Rounded],
    fast_accumulation: bool,
) -> Tensor:
    """x [..., K], weight [N, K], bias [N] -> [..., N] in x's precision, or autocast's where it is on."""
    if torch.is_grad_enabled():
        raise RuntimeError("float8 products have no gradient: use fp8_linears under torch.no_grad()")
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    left, right = rounded_input(x), round_to_fp8(weight)
    # GPUs add a bias inside the product where it comes out in bf16, and refuse one where it comes out in fp32.
    inside = bias.to(dtype) if bias is not None and dtype == torch.bfloat16 else None
    product = torch._scaled_mm(
        left.values.reshape(-1, x.shape[-1]),
        right.values.t(),
        scale_a=left.scale,
        scale_b=right.scale,
        bias=inside,
        out_dtype=dtype,
        use_fast_accum=fast_accumulation,
    )
    if bias is not None and inside is None:
        product += bias
    return product.view(*x.shape[:-1], -1)


class Rounded(NamedTuple):
    """A tensor as values (float8 e4m3) times scale (fp32, one number)."""

    values: Tensor
    scale: Tensor


def round_to_fp8(x: Tensor) -> Rounded:
    """Round a tensor to e4m3 with one scale: the power of two that brings its largest absolute value to 225..448.

    A power of two moves exponents alone. So how a value is rounded does not depend on its neighbours, and scores not on
    how sequences are put into batches (but for values less than 2^-15 of the largest, where e4m3 ends).
    """
    largest = torch.linalg.vector_norm(x, ord=torch.inf).float()
    # One kernel reads, scales and casts on a GPU; flat, so that one compiled kernel does for every shape.
    values, scale = (_compiled_cast if x.is_cuda else _cast)(x.reshape(-1), largest)
    return Rounded(values.view(x.shape), scale)


def _cast(x: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.exp2(torch.ceil(torch.log2(largest.clamp_min(SMALLEST) / E4M3_MAX)))
    # Beyond its largest value e4m3 has NaN only.
    return (x.float() / scale).clamp(-E4M3_MAX, E4M3_MAX).to(E4M3), scale


_compiled_cast = torch.compile(_cast, dynamic=True)


def _rounding_once() -> Callable[[Tensor], Rounded]:
    """:func:`round_to_fp8` that knows its last input again: queries, keys and values read the same, gate and up too.

    By memory and version: ZeRO-3's hooks hand each layer its own view of it.
    """
    last: tuple[Any, Tensor, Rounded] | None = None  # holds the tensor, so that its memory, and the key, stay its own

    def rounded(x: Tensor) -> Rounded:
        nonlocal last
        key = (x.data_ptr(), x.shape, x.stride(), x.dtype, x._version)
        if last is None or last[0] != key:
            last = key, x, round_to_fp8(x)
        return last[2]

    return rounded
