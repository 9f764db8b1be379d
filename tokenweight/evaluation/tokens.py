"""Count and cut the tokens of prompts as the evaluated model's tokenizer sees them."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenweight.corpus.encoding import ids_of
from tokenweight.errors import UserError

# A piece reaches from one space after a non-space to the next: byte-level BPE never merges across it.
_PIECE = re.compile(r" *[^ ]*(?:(?<=[^\S ]) +[^ ]*)*")
_PIECES_KEPT = 500_000  # some 70 MB: keys and values of needles are seldom seen again
END_OF_TEXT_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>")
_PROBES = (
    "A special magic number, is:\n7654321.\n\nOne  of two - don't! \"Yes\" (it's) 3c07c574-4925 \n end é ünï …",
    "1. health 2. gruesome 30. ad hoc\nQuestion: What?\t Answer: VAR ABCDE = VAR QXZWV  The sky is blue.\n VAR",
)


class TokenCounter:
    """Token counts of texts; repeated words are tokenised once where probes show that it changes nothing."""

    def __init__(self, tokenizer_dir: Path) -> None:
        from tokenweight.training.models import load_tokenizer

        self.tokenizer = load_tokenizer(tokenizer_dir)
        self.special_tokens = len(self.tokenizer("")["input_ids"])  # added around a text (BOS); `count` leaves them out
        self._counts: dict[str, int] = {}
        self.separable = all(self._count_pieces(probe) == self.count_whole(probe) for probe in _PROBES)

    def encode(self, text: str) -> list[int]:
        return ids_of(self.tokenizer, [text])[0]

    def decode(self, ids: list[int]) -> str:
        """Text of token ids without special tokens, spaces as they are."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def count(self, text: str) -> int:
        return self._count_pieces(text) if self.separable else self.count_whole(text)

    def count_whole(self, text: str) -> int:
        """The same number the slow, obvious way: the text tokenised as one."""
        return len(self.encode(text))

    def _count_pieces(self, text: str) -> int:
        pieces = Counter(_PIECE.findall(text))
        if len(self._counts) > _PIECES_KEPT:
            self._counts.clear()
        new = [piece for piece in pieces if piece not in self._counts]
        self._counts.update(zip(new, map(len, ids_of(self.tokenizer, new)), strict=True))
        return sum(self._counts[piece] * times for piece, times in pieces.items())


def model_tokenizer(directory: Path, name: str = "") -> Any:
    """The tokenizer of a model, with the end-of-text token by which it stops; a bare tokenizer.json does not say which.

    UserError: there is no tokenizer, no end-of-text token is known, the tokenizer ends every text with it, or it knows
    tokens that the model does not; `name` is what the user calls the model.
    """
    from tokenweight.training.models import load_tokenizer

    tokenizer = load_tokenizer(directory)
    if tokenizer.eos_token is None:
        known = [token for token in END_OF_TEXT_NAMES if token in tokenizer.get_vocab()]
        if not known:
            raise UserError(f"{name or directory}: its tokenizer names no eos_token; set one in tokenizer_config.json")
        tokenizer.eos_token = known[0]
    if tokenizer("a")["input_ids"][-1:] == [tokenizer.eos_token_id]:
        raise UserError(
            f"{name or directory}: its tokenizer ends every text with {tokenizer.eos_token}, so that no prompt could be "
            "answered; set add_eos_token to false in tokenizer_config.json"
        )
    # A padding token may have any id: it is masked, and one beyond the embedding is replaced; other special tokens that no
    # text has may lie beyond it too.
    config = json.loads((directory / "config.json").read_text("utf-8")) if (directory / "config.json").exists() else {}
    rows = (config.get("text_config") or config).get("vocab_size") or math.inf
    special = {id for id, token in tokenizer.added_tokens_decoder.items() if token.special}  # Gemma 3's image token
    unread = special - {tokenizer.bos_token_id, tokenizer.eos_token_id}
    greatest = max(id for id in tokenizer.get_vocab().values() if id not in unread)
    if greatest >= rows:
        raise UserError(
            f"{name or directory}: its tokenizer has tokens up to number {greatest}, the model {rows} embeddings; give the "
            "tokenizer that the model was trained with"
        )
    if tokenizer.pad_token_id is not None and tokenizer.pad_token_id >= rows:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


token_counter = lru_cache(maxsize=4)(TokenCounter)  # one a process: its word counts are worth keeping
