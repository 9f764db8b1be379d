"""Count and cut the tokens of prompts as the evaluated model's tokenizer sees them."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError

# A piece reaches from one space after a non-space to the next: byte-level BPE never merges across it.
_PIECE = re.compile(r" *[^ ]*(?:(?<=[^\S ]) +[^ ]*)*")
_PIECES_KEPT = 1_000_000
_COUNTED_TOGETHER = 100  # pieces: long texts waste no time between calls, several texts use several cores
_LONGEST_NUMBER_KEPT = 8  # characters: "1350." of a numbered list comes again, a needle's key or value does not
_NUMBER_OR_KEY = re.compile(r"[\d-]")
END_OF_TEXT_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>")
_PROBES = (
    "A special magic number, is:\n7654321.\n\nOne  of two - don't! \"Yes\" (it's) 3c07c574-4925 \n end é ünï …",
    "1. health 2. gruesome 30. ad hoc\nQuestion: What?\t Answer: VAR ABCDE = VAR QXZWV  The sky is blue.\n VAR",
)


class TokenCounter:
    """Token counts of texts; repeated words are tokenised once where probes show that it changes nothing.

    ``special_tokens`` is what the tokenizer adds around a text (BOS); ``count`` leaves it out.
    """

    def __init__(self, tokenizer_dir: Path) -> None:
        from tokenweight.training.models import load_tokenizer

        self.tokenizer = load_tokenizer(check_tokenizer(tokenizer_dir).parent)
        self.special_tokens = len(self.encode("", special=True))
        self._counts: dict[str, int] = {}
        self.separable = all(self._count_pieces(probe) == self.count_whole(probe) for probe in _PROBES)

    def encode(self, text: str, special: bool = False) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text of token ids without special tokens, spaces as they are."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def count(self, text: str) -> int:
        return self._count_pieces(text) if self.separable else self.count_whole(text)

    def count_whole(self, text: str) -> int:
        """The same number the slow, obvious way: the text tokenised as one."""
        return self._counts_of([text])[0]

    def _count_pieces(self, text: str) -> int:
        total = 0
        words: dict[str, int] = {}
        numbers: list[str] = []
        for piece, times in Counter(_PIECE.findall(text)).items():
            tokens = self._counts.get(piece)
            if tokens is not None:
                total += tokens * times
            elif len(piece) > _LONGEST_NUMBER_KEPT and _NUMBER_OR_KEY.search(piece):
                numbers += [piece] * times  # seldom seen again: counted together, not kept
            else:
                words[piece] = times
        if numbers:
            together = range(0, len(numbers), _COUNTED_TOGETHER)
            total += sum(self._counts_of(["".join(numbers[i : i + _COUNTED_TOGETHER]) for i in together]))
        learned = dict(zip(words, self._counts_of(list(words)), strict=True))
        if len(self._counts) + len(learned) > _PIECES_KEPT:
            self._counts.clear()
        self._counts |= learned
        return total + sum(learned[piece] * times for piece, times in words.items())

    def _counts_of(self, texts: list[str]) -> list[int]:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:  # a tokenizer in Python
            return [len(self.encode(text)) for text in texts]
        return [len(encoding) for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]


def check_tokenizer(tokenizer_dir: Path) -> Path:
    """The file that a tokenizer directory is known by. UserError: there is none."""
    directory = Path(tokenizer_dir)
    files = [f for name in ("tokenizer.json", "tokenizer.model", "vocab.json") if (f := directory / name).exists()]
    if directory.is_file():
        raise UserError(f"{directory}: is a file; give the directory that it is in")
    if not files:
        raise UserError(f"{directory}: holds no tokenizer.json; give a directory that AutoTokenizer can load")
    return files[0]


def model_tokenizer(directory: Path, name: str = "") -> Any:
    """The tokenizer of a model, with the end-of-text token by which it stops; a bare tokenizer.json does not say which.

    A padding token may have any id: it is masked, and one beyond the embedding is replaced; other special tokens that no
    text has may lie beyond it too.

    UserError: there is no tokenizer, no end-of-text token is known, the tokenizer ends every text with it, or it knows
    tokens that the model does not; `name` is what the user calls the model.
    """
    from tokenweight.training.models import load_tokenizer

    tokenizer = load_tokenizer(check_tokenizer(directory).parent)
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
    _check_vocabulary(tokenizer, directory, name)
    return tokenizer


def _check_vocabulary(tokenizer: Any, directory: Path, name: str) -> None:
    config = json.loads((directory / "config.json").read_text()) if (directory / "config.json").exists() else {}
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


@lru_cache(maxsize=4)
def token_counter(tokenizer_dir: Path) -> TokenCounter:
    """The counter of a tokenizer directory, one per process (its word counts are worth keeping)."""
    return TokenCounter(tokenizer_dir)
