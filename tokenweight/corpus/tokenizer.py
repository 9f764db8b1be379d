"""The shipped tokenizer: a byte-level BPE that splits as Llama-3's does, learned on the synthetic novel.

Bytes are its alphabet, so it reads any text. Numbers fall into groups of up to three digits, each a single token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
VOCABULARY = 4096
LLAMA_3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    """Learn a tokenizer of exactly `vocabulary` entries; digits in `texts` should be absent (they get their own)."""
    groups = [f"{i:0{digits}d}" for digits in (2, 3) for i in range(10**digits)]
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = _pre_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(groups),
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learned.train_from_iterator(texts, trainer)
    state = json.loads(learned.to_str())["model"]
    vocab: dict[str, int] = state["vocab"]
    merges = [(left, right) for left, right in state["merges"]]
    for group in groups:
        vocab[group] = len(vocab)
    merges += [(a, b) for a, b in product("0123456789", repeat=2)]
    merges += [(group[:cut], group[cut:]) for group in groups if len(group) == 3 for cut in (1, 2)]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BOS, EOS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS}:1 $B:1", special_tokens=[(BOS, vocab[BOS])]
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, out_dir: Path, model_max_tokens: int) -> None:
    """Write tokenizer.json and tokenizer_config.json, as AutoTokenizer.from_pretrained reads them."""
    out_dir.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out_dir / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": EOS,
        "clean_up_tokenization_spaces": False,
        "model_max_length": model_max_tokens,
    }
    (out_dir / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA_3_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
