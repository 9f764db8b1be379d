"""A sequence whose tokens lie on several processes: which are ours, and how they come together again.

P processes hold N / P tokens each, in order. Prediction j (the NLL of token j + 1) lies where token j does, so labels are
shifted before the sequence is cut: the last position of a shard predicts the first token of the next one. The last
shard has one prediction less. Weights need the whole sequence (a sum, the highest of all scores): NLLs are gathered, every
process makes the same weights from the same numbers, and takes its own. How attention sees all tokens is not decided
here: tokenweight.training.sequence_parallel.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad


@dataclass
class SequenceShard:
    """This process's share of every sequence of N = `tokens` tokens: number `rank` of `processes` equal ones."""

    tokens: int
    rank: int
    processes: int
    group: dist.ProcessGroup | None = None  # None: all processes
    exchanges: int = 0  # counted by attention, as proof that it has seen the other shards

    @property
    def own_tokens(self) -> slice:
        share = self.tokens // self.processes
        return slice(self.rank * share, (self.rank + 1) * share)

    @property
    def own_predictions(self) -> slice:
        """Our predictions of the M = N - 1."""
        return slice(self.own_tokens.start, min(self.own_tokens.stop, self.tokens - 1))

    @property
    def loss_scale(self) -> float:
        """Of our predictions' mean: engines average gradients over processes, P of which hold one sequence, (sum) * P / M."""
        ours: int = self.own_predictions.stop - self.own_predictions.start
        return ours * self.processes / (self.tokens - 1)

    def gather(self, ours: Tensor) -> Tensor:
        """All predictions' values [B, M] from each process's own [B, C], the same on every process; without gradient."""
        share = self.tokens // self.processes
        shards = self._all_gather(pad(ours.detach(), (0, share - ours.shape[1])))
        return torch.cat(shards, dim=1)[:, : self.tokens - 1]

    def spread(self, rows: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """function(rows), each process working on its part of the rows, the same result on every one; no gradient.

        All processes hold the same rows, and all work on equally many (the last row again where they do not divide):
        under ZeRO-3 a forward pass that one of them leaves out would leave the others waiting.
        """
        share = -(-len(rows) // self.processes)
        ours = torch.arange(self.rank * share, (self.rank + 1) * share, device=rows.device).clamp(max=len(rows) - 1)
        return torch.cat(self._all_gather(function(rows[ours])))[: len(rows)]

    def _all_gather(self, ours: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(ours, memory_format=torch.contiguous_format) for _ in range(self.processes)]
        dist.all_gather(parts, ours.contiguous(), group=self.group)
        return parts
