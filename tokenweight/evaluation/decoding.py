"""Greedy decoding of a batch from the keys and values of its prompts: on a GPU each step is one launch of a CUDA graph.

What a step of a small model costs is the launches of its some hundred kernels, the more so where processes share a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

GRAPH_BYTES = 2**30  # of a GPU that should be free for a graph's own memory


@torch.no_grad()
def decode_greedily(
    model: Any,
    context: Tensor,
    mask: Tensor,
    cache: dict[str, Any],
    max_length: int,
    padding: int,
    is_over: Callable[[Tensor], bool] | None,
) -> Tensor:
    """Token ids [batch, at most max_length] that begin with `context`: what transformers' greedy `generate` gives.

    `context` and `mask` [batch, tokens], padded on the left; `cache`: the model's argument with a StaticCache of
    `max_length` that holds all but the last token of each. A sequence ends with an end-of-text token of the model's
    generation_config, and has `padding` behind it; the batch when all have ended, or when `is_over` says so of all ids.
    """
    tokens, end = context.shape[1], model.generation_config.eos_token_id
    ends = torch.tensor([] if end is None else end, dtype=context.dtype, device=context.device).view(-1)
    ids = torch.nn.functional.pad(context, (0, max_length - tokens), value=padding)
    hidden = torch.finfo(model.dtype).min
    step = _Step(model, cache, ids[:, tokens - 1 : tokens].clone(), mask.sum(1, keepdim=True) - 1)
    step.mask = torch.full((len(ids), 1, 1, max_length), hidden, dtype=model.dtype, device=ids.device)
    step.mask[:, 0, 0, :tokens].masked_fill_(mask.bool(), 0)
    ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for place in range(tokens, max_length):
        if place > tokens:
            step.tokens.copy_(ids[:, place - 1 : place])
            step.positions += 1
            step.mask[..., place - 1] = 0
        found = torch.where(ended, padding, step().argmax(-1))
        ids[:, place] = found
        ended |= torch.isin(found, ends)
        if bool(ended.all()) or (is_over is not None and is_over(ids[:, : place + 1])):
            return ids[:, : place + 1]
    return ids


class _Step:
    """The model's logits [batch, V] of the tokens that its tensors hold: the first time kernel by kernel, then as a graph.

    A graph needs memory that nobody has, also not the process itself for later use. Without it, every step is the first.
    """

    mask: Tensor  # added to attention's scores, [batch, 1, 1, max_length]

    def __init__(self, model: Any, cache: dict[str, Any], tokens: Tensor, positions: Tensor) -> None:
        self.model, self.cache, self.tokens, self.positions = model, cache, tokens, positions
        self.graph: torch.cuda.CUDAGraph | None = None
        self.logits: Tensor | None = None
        self.can_be_graph = tokens.is_cuda

    def __call__(self) -> Tensor:
        if self.logits is not None and self.can_be_graph and self.graph is None:
            self._capture()
        if self.graph is None or self.logits is None:
            self.logits = self._logits()
        else:
            self.graph.replay()
        return self.logits

    def _capture(self) -> None:
        if torch.cuda.mem_get_info()[0] < GRAPH_BYTES:
            torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                logits = self._logits()
        except RuntimeError:  # out of memory, or a model with operations that a graph cannot hold
            self.can_be_graph = False
        else:
            self.graph, self.logits = graph, logits

    def _logits(self) -> Tensor:
        given = {"attention_mask": self.mask, "position_ids": self.positions, "use_cache": True, **self.cache}
        logits: Tensor = self.model(self.tokens, logits_to_keep=1, **given).logits
        return logits[:, -1].float()
