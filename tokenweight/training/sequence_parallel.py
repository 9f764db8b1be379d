"""Sequence parallelism (DeepSpeed Ulysses, Jacobs et al. 2023): P processes share each sequence, N / P tokens each.

Every layer but attention works token by token. Around attention an all-to-all exchanges heads for tokens: each process
computes all tokens of H / P heads, exactly, by the same kernel as ever.

Why not DeepSpeed's own integration (UlyssesSPAttentionHF by accelerate's ParallelismConfig): it needs DeepSpeed as the
engine; it cuts the batches itself, while weights need whole sequences; the trainer's loss for it is a mean over tokens;
and one registered attention serves all passes (or, by a switch, those in training mode), while windows are scored whole,
each by one process. Here a call of the model says whether it is sharded, by an argument that transformers hands down to
attention. So scoring, saving and evaluation stay what they were, recomputation in the backward pass sees what the
forward pass saw, and any engine serves: plain DDP, ZeRO-2, ZeRO-3.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tokenweight.errors import UserError
from tokenweight.recipes.schema import Execution
from tokenweight.weighting.shards import SequenceShard

ATTENTION = "sdpa_over_shards"


def check_sequence_parallel(execution: Execution, config: Any, long_tokens: int) -> None:
    """Raise UserError unless processes, heads and tokens divide by execution.sequence_parallel."""
    count = execution.sequence_parallel
    if count == 1:
        return
    heads = config.num_attention_heads
    divisible = {
        "the model's attention heads": heads,
        "the model's key-value heads": getattr(config, "num_key_value_heads", None) or heads,
        "chunking.long_tokens": long_tokens,
    }
    for name, number in divisible.items():
        if number % count:
            raise UserError(f"execution.sequence_parallel: {count} does not divide {name} ({number}); change one")
    if getattr(config, "sliding_window", None) is not None:
        raise UserError("execution.sequence_parallel: the model's attention has a sliding window; set it to 1")


def share_sequences(model: Any, execution: Execution, long_tokens: int) -> SequenceShard | None:
    """Prepare a model for sharded passes and say which shard is ours; None without sequence parallelism.

    Processes that share sequences have neighbouring ranks. All processes of the run call this.
    """
    if execution.sequence_parallel == 1:
        return None
    if not model._supports_sdpa:  # ours is sdpa: gpt-oss would lose its sinks
        raise UserError("execution.sequence_parallel: the model's attention has no form by torch's sdpa; set it to 1")
    install_attention(model)
    group, _ = dist.new_subgroups(group_size=execution.sequence_parallel)
    return SequenceShard(long_tokens, dist.get_rank(group), execution.sequence_parallel, group)


def install_attention(model: Any) -> None:
    """Let a transformers model's attention take `sequence_shard`; without it, it remains sdpa, causal, without mask."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, attention_over_shards)
    model.set_attn_implementation(ATTENTION)


def attention_over_shards(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    sequence_shard: SequenceShard | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """transformers' sdpa over the tokens of all shards: query [B, H, T, d], key and value [B, H_kv, T, d].

    Returns [B, T, H, d] for our T tokens. (H / P heads keep their H_kv / P key-value heads: a head's group of H / H_kv
    lies on one process.)
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if sequence_shard is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    shard = sequence_shard
    shard.exchanges += 1
    query, key, value = (_exchanged(states, shard) for states in (query, key, value))
    output, _ = sdpa_attention_forward(module, query, key, value, None, **options)
    return _exchanged(output, shard), None


def _exchanged(states: Tensor, shard: SequenceShard) -> Tensor:
    """Cut dimension 1 into P parts, send part i to process i, and join what comes along dimension 2.

    [B, H, T, d] of our tokens -> [B, H / P, N, d] of our heads; [B, N, H / P, d] of our heads -> [B, T, H, d] of our tokens.
    """
    by_receiver = states.unflatten(1, (shard.processes, -1)).movedim(1, 0)
    return _Exchange.apply(by_receiver, shard.group).movedim(0, 2).flatten(2, 3)  # type: ignore[no-any-return,no-untyped-call]


class _Exchange(torch.autograd.Function):
    """All-to-all along the first dimension [P, ...]: part i goes to process i. Its backward is itself."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        received = torch.empty_like(parts, memory_format=torch.contiguous_format)
        dist.all_to_all_single(received, parts.contiguous(), group=group)
        return received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return _Exchange.forward(ctx, gradient, ctx.group), None


def shared_rows(rows: int, batch_sequences: int, processes: int) -> list[int]:
    """Rows in order, every batch as often in a row as processes share it: data loaders deal batch i to rank i modulo ranks."""
    batches = (range(first, min(first + batch_sequences, rows)) for first in range(0, rows, batch_sequences))
    return [row for batch in batches for _ in range(processes) for row in batch]
