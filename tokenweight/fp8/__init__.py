"""Unfrozen scoring in float8 (`scorer.precision: fp8`): an optional room that nothing else imports.

The linear layers of a model's blocks multiply in e4m3, at up to twice the speed of bf16. Scores only rank and weigh
tokens, so the scoring pass can bear rounding that training could not. How much the ranking bears is measured on the
first step of every run, against scores in the training's own precision.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, distributed, nn

from tokenweight.errors import StageError, UserError
from tokenweight.weighting.settings import Weighting
from tokenweight.weighting.weights import Choice, token_weights

E4M3 = torch.float8_e4m3fn
E4M3_MAX = torch.finfo(E4M3).max  # 448
SMALLEST = 2.0**-100  # a tensor whose values are all smaller is zero
SIDE_MULTIPLE = 16  # of a weight's both sides: what torch._scaled_mm takes on GPUs
MINIMUM_OVERLAP = 0.98
KAPPA_WITHOUT_ONE = 0.2  # for weightings that choose no tokens (dense): the paper's kappa for unfrozen scorers
Rounded = tuple[Tensor, Tensor]  # values in e4m3, and their scale
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
def fp8_linears(model: nn.Module) -> Iterator[list[str]]:
    """While open, the linear layers of a model multiply in float8 e4m3; gives their names. For passes without gradient.

    Input and weight get one scale each, by their largest absolute value at that moment; products accumulate in fp32
    and come out in the precision that they would have had. Embeddings, the head (a TokenNLLHead, no plain nn.Linear)
    and layers with a side that is no multiple of 16 stay as they are. Weights are rounded inside `forward`, the only
    place where ZeRO-3 has them. Everything is as it was afterwards.
    """
    rounded_input = _rounding_once()
    layers = {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and not (module.in_features % SIDE_MULTIPLE or module.out_features % SIDE_MULTIPLE)
    }

    def forward(self: nn.Linear, x: Tensor) -> Tensor:
        return _fp8_linear(x, self.weight, self.bias, rounded_input)

    before = {module: module.__dict__.get("forward") for module in layers.values()}
    try:
        for module in before:
            module.__dict__["forward"] = MethodType(forward, module)
        yield list(layers)
    finally:
        for module, own in before.items():
            del module.__dict__["forward"]
            if own is not None:
                module.__dict__["forward"] = own


def _fp8_linear(x: Tensor, weight: Tensor, bias: Tensor | None, rounded_input: Callable[[Tensor], Rounded]) -> Tensor:
    """x [..., K], weight [N, K], bias [N] -> [..., N] in x's precision, or autocast's where it is on."""
    if torch.is_grad_enabled():
        raise RuntimeError("float8 products have no gradient: use fp8_linears under torch.no_grad()")
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    (left, left_scale), (right, right_scale) = rounded_input(x), round_to_fp8(weight)
    # GPUs add a bias inside the product where it comes out in bf16, and refuse one where it comes out in fp32.
    inside = bias.to(dtype) if bias is not None and dtype == torch.bfloat16 else None
    product = torch._scaled_mm(
        left.reshape(-1, x.shape[-1]),
        right.t(),
        scale_a=left_scale,
        scale_b=right_scale,
        bias=inside,
        out_dtype=dtype,
    )
    if bias is not None and inside is None:
        product += bias
    return product.view(*x.shape[:-1], -1)


def round_to_fp8(x: Tensor) -> Rounded:
    """Round a tensor to values in e4m3 times one scale, the power of two that brings its largest absolute value to 225..448.

    A power of two moves exponents alone. So how a value is rounded does not depend on its neighbours, and scores not on
    how sequences are put into batches (but for values less than 2^-15 of the largest, where e4m3 ends).
    """
    largest = torch.linalg.vector_norm(x, ord=torch.inf).float()
    # One kernel reads, scales and casts on a GPU; flat, so that one compiled kernel does for every shape.
    values, scale = (_compiled_cast if x.is_cuda else _cast)(x.reshape(-1), largest)
    return values.view(x.shape), scale


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


class Fp8Scoring:
    """What the trainer asks of float8 scoring: its products, and whether they choose the right tokens.

    `measuring` until the first step is finished: the trainer then scores in `precision` too, and :meth:`add` compares.
    """

    def __init__(self, weighting: Weighting, precision: str, seed: int, choose: Choice, device: torch.device) -> None:
        self.choosing, self.precision = choosing_weighting(weighting), precision
        self.overlap = partial(top_kappa_overlap, weighting=weighting, seed=seed, choose=choose)
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        self.measuring = True

    linears = staticmethod(fp8_linears)

    def add(self, long_nll: Tensor, fp8_short_nll: Tensor, short_nll: Tensor, sequence_ids: list[int]) -> None:
        """Count a micro-batch: the NLLs [B, M] of whole sequences, as weights see them."""
        counted = self.overlap(long_nll, short_nll, fp8_short_nll, sequence_ids=sequence_ids)
        self.counts += torch.tensor(counted, device=self.counts.device)

    def finish(self) -> float:
        """The overlap over all processes, the same on each; StageError on each where it is too low."""
        self.measuring = False
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(self.counts)
        shared, chosen = self.counts.tolist()
        overlap: float = shared / chosen
        if overlap < MINIMUM_OVERLAP:
            raise StageError(
                f"scorer.precision: fp8 scores agree with {self.precision} scores on {overlap:.4f} of the top "
                f"{self.choosing.kappa:g} of tokens, and {MINIMUM_OVERLAP} is needed; set it to 'training' to score in "
                f"{self.precision}"
            )
        return overlap


def top_kappa_overlap(
    long_nll: Tensor, short_nll: Tensor, other_short_nll: Tensor, weighting: Weighting, **ties: Any
) -> tuple[int, int]:
    """Tokens among the top kappa by both of two short-context NLLs, and tokens among the top kappa by either one.

    All NLLs fp32 [B, M] of the same tokens; the counts add up over batches and processes, their ratio is from kappa (by
    chance) to 1. The sets are those that sparse postprocessing keeps (Section 3.2), by the weighting's kappa or by
    :data:`KAPPA_WITHOUT_ONE`. `ties`: what settles them in :func:`token_weights`, for both alike.
    """
    weighting = choosing_weighting(weighting)
    chosen, also = (token_weights(long_nll, nll, weighting, **ties) > 0 for nll in (short_nll, other_short_nll))
    return int((chosen & also).sum()), int(chosen.sum())


def choosing_weighting(weighting: Weighting) -> Weighting:
    """The sparse weighting that ranks tokens as `weighting` does."""
    if weighting.postprocessing == "sparse":
        return weighting
    return weighting.model_copy(update={"postprocessing": "sparse", "lambda_": None, "kappa": KAPPA_WITHOUT_ONE})
