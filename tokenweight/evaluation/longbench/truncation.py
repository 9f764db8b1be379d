"""Cut a prompt in the middle so that it fits the model's context (LongBench's and LCEG's way)."""

from __future__ import annotations

from tokenweight.errors import UserError
from tokenweight.evaluation.tokens import TokenCounter


def truncate_middle(prompt: str, budget_tokens: int, counter: TokenCounter) -> tuple[str, int, int]:
    """The prompt with its middle tokens removed if it exceeds the budget.

    Args:
        prompt: text without BOS.
        budget_tokens: context minus tokens to generate; BOS counts.

    Returns:
        The prompt, its tokens, and its tokens before the cut, both with BOS where the tokenizer adds one.

    Raises:
        UserError: the budget leaves no room for a prompt.
    """
    ids = counter.encode(prompt)
    untruncated = len(ids) + counter.special_tokens
    half = budget_tokens // 2
    if half <= counter.special_tokens:
        raise UserError(f"context_tokens: {budget_tokens} tokens are left for a prompt; use a model with more context")
    kept, n_tokens = prompt, untruncated
    # Tokens of the joined text can outnumber the kept ones by a few at the seam: cut those off as well.
    while n_tokens > budget_tokens:
        kept = counter.decode(ids[: half - counter.special_tokens]) + counter.decode(ids[-half:])
        n_tokens = len(counter.encode(kept)) + counter.special_tokens
        half -= 1
    return kept, n_tokens, untruncated
