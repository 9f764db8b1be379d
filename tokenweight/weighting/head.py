"""Per-token NLL straight from hidden states: the language-model head that never builds all logits.

For a Llama at 32k tokens the logits alone are 15.7 GiB in fp32, and in bf16 their NLL carries an error as
large as most scores. Here logits exist only for a chunk of rows at a time, always in fp32, and are computed
again in the backward pass, which accepts any gradient per token: the weights of Section 3 arrive there.
Rows of zero gradient (sparse weights) are skipped, which is exact.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tokenweight.weighting.shards import SequenceShard

CPU_CHUNK_BYTES = 8 * 2**20  # logits that stay in the cache; smaller chunks lose where cores are shared
_PROBE_TOKENS = 4
Rounding = Literal["none", "logits", "nll"]  # what is rounded to bf16 on the way: nothing; logits; logits and NLL


def per_token_nll(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    chunk_rows: int = 2048,
    rounding: Rounding = "none",
    entropy: Tensor | None = None,
    fused: bool = False,
) -> Tensor:
    """Negative log-likelihood of each label under softmax(hidden @ weight.T + bias), in nats.

    hidden [rows, d], weight [V, d], labels int64 [rows] in [0, V), bias [V]. Returns fp32 [rows].
    Differentiable in hidden, weight and bias for any gradient per row. At most `chunk_rows` x V logits exist
    at a time (fewer on a CPU, where a chunk should fit its cache). Under autocast the products use its dtype.
    `rounding` "logits" gives the NLL of logits rounded to bf16; "nll" rounds the NLL too, and its gradient is that
    of a bf16 cross entropy: weights, log-probabilities and logit gradients rounded to bf16. `entropy` (fp32 [rows]) is
    filled with that of each prediction, in nats, a constant: MiLe needs it. `fused` compiles what is done with the logits
    of a chunk: other values, by rounding (benchmarks/heads.py has time and error beside other heads).
    Raises ValueError where shapes do not fit.
    """
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1]:
        raise ValueError(f"hidden {tuple(hidden.shape)} and weight {tuple(weight.shape)} must be [rows, d] and [V, d]")
    if labels.shape != hidden.shape[:1]:
        raise ValueError(f"labels {tuple(labels.shape)} must be one per row of hidden {tuple(hidden.shape)}")
    if chunk_rows < 1:
        raise ValueError(f"chunk_rows must be positive, not {chunk_rows}")
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
    if kind == "cpu":
        chunk_rows = min(chunk_rows, max(64, CPU_CHUNK_BYTES // (4 * weight.shape[0])))
    nll: Tensor = _TokenNLL.apply(  # type: ignore[no-untyped-call]
        hidden.to(dtype), weight, bias, labels, chunk_rows, rounding, entropy, fused
    )
    return nll


@dataclass
class NLLRequest:
    """Which positions of a forward pass to score: position start + i predicts labels[:, i]."""

    labels: Tensor  # int64 [B, C]
    start: int = 0
    entropy: Tensor | None = None  # to be filled: fp32 [B, C]
    answered: tuple[Tensor, int] | None = None  # the answer, and how often it had been written to


class TokenNLLHead(nn.Linear):
    """A language-model head that answers with the NLL of labels instead of logits when it is asked to.

    The computation happens inside the module, because under ZeRO-3 or FSDP the weight is whole only there.
    Without a request it is the ordinary `lm_head` that it replaced (generation, evaluation).
    """

    request: NLLRequest | None = None
    rounding: Rounding = "none"
    fused = False

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden [B, T, d] -> logits [B, T, V], or with a request pending fp32 NLL [B, C]."""
        asked = self.request
        if asked is None:
            return super().forward(hidden)
        shape = asked.labels.shape
        rows = hidden[:, asked.start : asked.start + shape[1]].reshape(-1, hidden.shape[-1])
        nll = per_token_nll(
            rows,
            self.weight,
            asked.labels.reshape(-1),
            bias=self.bias,
            rounding=self.rounding,
            entropy=None if asked.entropy is None else asked.entropy.view(-1),
            fused=self.fused,
        ).view(shape)
        asked.answered = nll.detach(), nll._version
        return nll


def install_head(model: Any, rounding: Rounding = "none") -> TokenNLLHead:
    """Replace a causal language model's output embedding by a :class:`TokenNLLHead` with the same parameters.

    Its NLLs are rounded as `rounding` says (:func:`per_token_nll`). Ties stay tied and parameter names stay what they
    were. The model is asked for the NLL of a few tokens at once. Raises ValueError for a head that is not linear, or a
    model that changes what the head gives (soft-capping, scaling): no head can know how.
    """
    head = model.get_output_embeddings()
    if isinstance(head, TokenNLLHead):
        head.rounding = rounding
        return head
    if not isinstance(head, nn.Linear):
        raise ValueError(f"the model's head is {type(head).__name__}, not a linear layer")  # noqa: TRY004
    with torch.device("meta"):
        ours = TokenNLLHead(head.in_features, head.out_features, bias=head.bias is not None)
    ours.weight, ours.bias = head.weight, head.bias
    ours.train(head.training)
    ours.rounding = rounding
    model.set_output_embeddings(ours)
    try:
        _try(model)
    except ValueError:
        model.set_output_embeddings(head)  # or it would count as installed when it is asked for again
        raise
    return ours


@torch.no_grad()
def _try(model: Any) -> None:
    """Raise ValueError unless the model gives the NLL of some tokens, by its head and unchanged, and that is finite."""
    parameters = list(model.parameters())
    if any(parameter.is_meta or hasattr(parameter, "ds_id") for parameter in parameters):
        return  # not here, or under ZeRO-3 elsewhere
    was_training = model.training
    model.eval()
    nll = model_nll(model, torch.arange(_PROBE_TOKENS, device=parameters[0].device)[None])
    model.train(was_training)
    if not bool(nll.isfinite().all()):
        raise ValueError("the model's logits are not finite: its weights are damaged, or too large for their precision")


def model_nll(
    model: nn.Module,
    token_ids: Tensor,
    start: int = 0,
    stop: int | None = None,
    *,
    shard: SequenceShard | None = None,
    entropy: Tensor | None = None,
    position_ids: Tensor | None = None,
) -> Tensor:
    """NLL at positions [start, stop) of each sequence: position j is the NLL of token j + 1 given tokens 0..j.

    `model` is a causal language model with a :class:`TokenNLLHead` (see :func:`install_head`), wrapped or not;
    token_ids int64 [B, T]. Returns fp32 [B, C], C = stop - start (stop None: all T - 1). The head sees only
    the positions asked for. `entropy` (fp32 [B, C]) is filled with that of each prediction. `position_ids` (int64 [B, T])
    that begin anew with each document keep it from seeing another: transformers makes the mask of them.

    Where processes share a sequence (`shard`), the positions are our predictions: token_ids are the whole sequences, the
    same on all of them, and `model` has the attention of tokenweight.training.sequence_parallel. Raises ValueError where
    its layers have not exchanged anything: their NLLs would be those of shards without the rest; for position_ids there,
    of which that attention makes no mask; and where the model changes what its head has answered.
    """
    if shard is not None and position_ids is not None:
        raise ValueError("position_ids: documents of a sequence that processes share would see each other")
    inputs: dict[str, Any] = {"input_ids": token_ids}
    if position_ids is not None:
        inputs["position_ids"] = position_ids
    own_tokens, exchanges = slice(0, token_ids.shape[1]), 0
    if shard is not None:
        own_tokens, exchanges = shard.own_tokens, shard.exchanges
        start, stop = shard.own_predictions.start, shard.own_predictions.stop
        positions = torch.arange(own_tokens.start, own_tokens.stop, device=token_ids.device)[None]
        inputs = {"input_ids": token_ids[:, own_tokens], "position_ids": positions, "sequence_shard": shard}
    stop = token_ids.shape[1] - 1 if stop is None else stop
    if not 0 <= start < stop < token_ids.shape[1]:
        raise ValueError(f"positions [{start}, {stop}) do not lie in the {token_ids.shape[1] - 1} of the sequence")
    head = next((m for m in model.modules() if isinstance(m, TokenNLLHead)), None)
    if head is None:
        raise ValueError("the model has no TokenNLLHead: call install_head(model) first")
    request = head.request = NLLRequest(token_ids[:, start + 1 : stop + 1], start - own_tokens.start, entropy)
    try:
        nll: Tensor = model(use_cache=False, **inputs).logits
    finally:
        head.request = None
    assert request.answered is not None
    answer, version = request.answered
    same = nll.data_ptr() == answer.data_ptr() or torch.equal(nll.detach(), answer)
    if not same or answer._version != version:
        raise ValueError(
            f"{type(model).__name__} changes its logits after the head, so that its NLL cannot be had there"
        )
    if shard is not None and shard.exchanges == exchanges:
        raise ValueError("the model's attention does not take a sequence_shard: its shards would not see each other")
    return nll


class _TokenNLL(torch.autograd.Function):
    """Chunked linear layer and NLL; saves the log-normalisers and computes the logits again in backward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        rows: int,
        rounding: Rounding,
        entropy: Tensor | None,
        fused: bool,
    ) -> Tensor:
        nll = torch.empty(hidden.shape[0], dtype=torch.float32, device=hidden.device)
        normaliser = torch.empty_like(nll)
        chunk_nll = compiled(_chunk_nll, dynamic=True) if fused else _chunk_nll
        with torch.autocast(hidden.device.type, enabled=False):
            matrix = _operand(weight, hidden.dtype)
            for start in range(0, len(hidden), rows):
                chunk = slice(start, start + rows)
                of_chunk = chunk_nll(hidden[chunk], matrix, bias, labels[chunk], rounding, entropy is not None)
                normaliser[chunk], nll[chunk] = of_chunk[:2]
                if entropy is not None:
                    entropy[chunk] = of_chunk[2]
        if rounding == "nll":
            _round_to_bf16(nll)
        ctx.save_for_backward(hidden, weight, bias, labels, normaliser)
        ctx.rows, ctx.rounding, ctx.fused = rows, rounding, fused
        return nll

    @staticmethod
    def backward(ctx: Any, nll_gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, labels, normaliser = ctx.saved_tensors
        gradient = nll_gradient.float()
        if ctx.rounding == "nll":
            gradient = _round_to_bf16(gradient.clone())
        wanted = gradient.nonzero()[:, 0]  # a row of zero weight adds exactly nothing: leave it out
        all_rows = wanted.numel() == gradient.numel()
        if not all_rows:
            hidden, labels, normaliser, gradient = hidden[wanted], labels[wanted], normaliser[wanted], gradient[wanted]
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        d_bias = torch.zeros_like(bias, dtype=torch.float32) if ctx.needs_input_grad[2] else None
        logit_gradient = compiled(_chunk_logit_gradient, dynamic=True) if ctx.fused else _chunk_logit_gradient
        with torch.autocast(hidden.device.type, enabled=False):
            matrix = _operand(weight, hidden.dtype)
            for start in range(0, len(hidden), ctx.rows):
                chunk = slice(start, start + ctx.rows)
                of_chunk = (labels[chunk], normaliser[chunk], gradient[chunk])
                d_logits = logit_gradient(hidden[chunk], matrix, bias, *of_chunk, ctx.rounding)
                if d_bias is not None:
                    d_bias += d_logits.sum(dim=0, dtype=torch.float32)
                d_hidden[chunk] = d_logits @ matrix
                if d_weight is not None and d_logits.dtype == torch.float32:
                    d_weight.addmm_(d_logits.t(), hidden[chunk].float())
                elif d_weight is not None:
                    torch.addmm(d_weight, d_logits.t(), hidden[chunk], out_dtype=torch.float32, out=d_weight)
        if not all_rows:
            d_hidden = torch.zeros_like(ctx.saved_tensors[0]).index_copy_(0, wanted, d_hidden)
        d_weight = None if d_weight is None else d_weight.to(weight.dtype)
        d_bias = None if d_bias is None else d_bias.to(bias.dtype)
        return d_hidden, d_weight, d_bias, *[None] * 5


def _chunk_nll(
    hidden: Tensor, matrix: Tensor, bias: Tensor | None, labels: Tensor, rounding: Rounding, with_entropy: bool
) -> tuple[Tensor, ...]:
    """Log-normaliser and NLL of some rows, and the entropy of their predictions; each fp32 [rows]."""
    logits = _logits(hidden, matrix, bias, rounding)
    normaliser = torch.logsumexp(logits, dim=-1)
    nll = normaliser - logits.gather(1, labels[:, None])[:, 0]
    if not with_entropy:
        return normaliser, nll
    log_p = logits.sub_(normaliser[:, None])
    return normaliser, nll, -(log_p.exp() * log_p).sum(dim=-1)


def _chunk_logit_gradient(
    hidden: Tensor,
    matrix: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    normaliser: Tensor,
    gradient: Tensor,
    rounding: Rounding,
) -> Tensor:
    """Gradient of some rows' logits, [rows, V] in the dtype of the products: (p - [label]) * gradient of the NLL."""
    log_p = _logits(hidden, matrix, bias, rounding).sub_(normaliser[:, None])
    if rounding == "nll":
        _round_to_bf16(log_p)
    of_label = (log_p.gather(1, labels[:, None]).exp() - 1) * gradient[:, None]
    d_logits = log_p.exp_().mul_(gradient[:, None]).to(matrix.dtype)
    d_logits = d_logits.scatter_(1, labels[:, None], of_label.to(matrix.dtype))
    return _round_to_bf16(d_logits) if rounding == "nll" else d_logits


@cache
def compiled(function: Callable[..., Any], dynamic: bool) -> Callable[..., Any]:
    """A function compiled once, whose import of the compiler takes seconds; `dynamic`: for any number of rows.

    With sparse weights each chunk at the end has its own.
    """
    return torch.compile(function, dynamic=dynamic)


def _operand(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight as the products take it: bf16 on a GPU, whose products add up in fp32; fp32 on a CPU."""
    return weight.to(dtype) if weight.is_cuda else weight.float()


def _logits(hidden: Tensor, matrix: Tensor, bias: Tensor | None, rounding: Rounding) -> Tensor:
    """Fp32 logits [rows, V]; the product of bf16 operands is rounded to bf16 only where `rounding` asks for it."""
    exact: dict[str, Any] = {} if matrix.dtype == torch.float32 else {"out_dtype": torch.float32}
    logits = torch.mm(hidden.to(matrix.dtype), matrix.t(), **exact)
    logits = logits if bias is None else logits.add_(bias.float())
    return logits if rounding == "none" else _round_to_bf16(logits)


def _round_to_bf16(values: Tensor) -> Tensor:
    """Round fp32 values to what bf16 can hold, in place."""
    return values.copy_(values.bfloat16())
