"""Short-context windows: which window of n tokens gives which prediction its short NLL (Section 4).

A sequence of N tokens has N - 1 predictions; position j holds the NLL of token j + 1. Windows of n tokens start
every s tokens. The first gives positions 0..n-2; each later one gives its last s positions, so that every
prediction is scored exactly once and, past the first window, with n - s to n - 1 tokens of context.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tokenweight.weighting.head import model_nll
from tokenweight.weighting.shards import SequenceShard


@dataclass(frozen=True)
class WindowPlan:
    """The windows of one sequence length: window i covers tokens [starts[i], starts[i] + short_tokens)."""

    long_tokens: int
    short_tokens: int
    stride_tokens: int
    starts: tuple[int, ...]
    scored_ranges: tuple[tuple[int, int], ...]  # per window: the half-open range of positions that it scores

    @property
    def predictions(self) -> int:
        """Number of predictions M = N - 1."""
        return self.long_tokens - 1

    def with_own_context(self, short_nll: Tensor, long_nll: Tensor) -> Tensor:
        """`short_nll` [B, M] with the first window's positions from `long_nll`: there both contexts are the same, D = 0."""
        first = self.scored_ranges[0][1]
        return torch.cat([long_nll[:, :first], short_nll[:, first:]], dim=1)


def plan_windows(long_tokens: int, short_tokens: int, stride_tokens: int) -> WindowPlan:
    """Windows for N = long_tokens, n = short_tokens, s = stride_tokens, in any divisibility.

    K = 1 + ceil((N - n) / s) windows; the last is right-aligned at N - n and scores what is left.
    Raises ValueError unless 0 < s < n <= N and n >= 2.
    """
    if not 2 <= short_tokens <= long_tokens:
        raise ValueError(f"short_tokens ({short_tokens}) must lie between 2 and long_tokens ({long_tokens})")
    if not 0 < stride_tokens < short_tokens:
        raise ValueError(
            f"stride_tokens ({stride_tokens}) must lie between 1 and short_tokens - 1 ({short_tokens - 1})"
        )
    later = -(-(long_tokens - short_tokens) // stride_tokens)
    starts = [min(c * stride_tokens, long_tokens - short_tokens) for c in range(later + 1)]
    ends = [start + short_tokens - 1 for start in starts]  # last position that a window can score, plus one
    scored = tuple(zip([0, *ends[:-1]], ends, strict=True))
    return WindowPlan(long_tokens, short_tokens, stride_tokens, tuple(starts), scored)


def window_token_ids(token_ids: Tensor, plan: WindowPlan, windows: list[int], bos_token_id: int | None) -> Tensor:
    """Token ids of the given windows of each sequence: int64 [B, len(windows), short_tokens].

    token_ids [B, N]. Where a sequence begins with BOS, so does each of its windows: BOS replaces the window's
    first token, which is overlap and never scored.
    """
    if token_ids.shape[1] != plan.long_tokens:
        raise ValueError(f"sequences have {token_ids.shape[1]} tokens, the windows are for {plan.long_tokens}")
    gathered = torch.stack([token_ids[:, plan.starts[w] : plan.starts[w] + plan.short_tokens] for w in windows], dim=1)
    if bos_token_id is not None:
        begins = token_ids[:, 0] == bos_token_id
        gathered[:, :, 0] = torch.where(begins[:, None], bos_token_id, gathered[:, :, 0])
    return gathered


@torch.no_grad()
def score_windows(
    model: nn.Module,
    token_ids: Tensor,
    plan: WindowPlan,
    *,
    bos_token_id: int | None,
    windows_per_batch: int | None = None,
    first_window: bool = True,
    shard: SequenceShard | None = None,
) -> Tensor:
    """Short-context NLL of every prediction: fp32 [B, M]; the one routine for any scorer.

    `model` carries a TokenNLLHead and sees each window alone, `windows_per_batch` of them in a forward pass (None: as
    many as hold the tokens of the B sequences, the memory of one training forward pass); the head runs on the scored
    positions only. The model is in eval mode meanwhile. With `first_window` False
    positions 0..n-2 are left zero, to be taken from the long pass (:meth:`WindowPlan.with_own_context`). Processes that
    share their sequences (`shard`) score whole windows each, without a word in between, and all get all NLLs.
    """
    was_training = model.training
    model.eval()
    short_nll = torch.zeros(token_ids.shape[0], plan.predictions, dtype=torch.float32, device=token_ids.device)
    alike: dict[int, list[int]] = {}  # windows by the first of their own positions that they score
    for window, (start, scored) in enumerate(zip(plan.starts, plan.scored_ranges, strict=True)):
        if window or first_window:
            alike.setdefault(scored[0] - start, []).append(window)
    per_batch = windows_per_batch or max(1, len(token_ids) * plan.long_tokens // plan.short_tokens)
    for first_position, windows in alike.items():
        inputs = window_token_ids(token_ids, plan, windows, bos_token_id).flatten(0, 1)

        def nll_of(rows: Tensor, first_position: int = first_position) -> Tensor:
            batches = torch.split(rows, per_batch)
            return torch.cat([model_nll(model, batch, first_position, plan.short_tokens - 1) for batch in batches])

        nll = nll_of(inputs) if shard is None else shard.spread(inputs, nll_of)
        nll = nll.view(token_ids.shape[0], len(windows), -1)
        for i, window in enumerate(windows):
            start, stop = plan.scored_ranges[window]
            short_nll[:, start:stop] = nll[:, i]
    model.train(was_training)
    return short_nll
