"""Make the tokenizer and the tiny base model that the package ships (tokenweight/assets/smoke-base), from nothing.

    python scripts/make_smoke_base.py [--out DIR] [--steps N] [--device cpu|cuda]

Learns a 4,096-entry byte-level BPE on the synthetic novel, trains a Llama on fresh novel text (first at 256 tokens,
then at 1,024), measures how often it recalls facts of unseen text, and writes model, tokenizer, training-record.json.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import re
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from tokenweight.corpus import exercises, novel
from tokenweight.corpus.assets import smoke_base_dir
from tokenweight.corpus.documents import Document, Kind
from tokenweight.corpus.encoding import Encoder, resolve_kinds
from tokenweight.corpus.lexicon import COMMON_WORDS, words
from tokenweight.corpus.tokenizer import save_tokenizer, train_tokenizer

CONTEXT_TOKENS = 1024
TRAINING_SEED = 1_000_003  # far from any recipe's novel
TEST_SEED = 2_000_003


def main() -> None:
    """Tokenizer, data, model, measurement, files."""
    args = _arguments()
    started = time.time()
    if not (args.out / "tokenizer.json").exists() or args.new_tokenizer:
        save_tokenizer(train_tokenizer(tokenizer_texts()), args.out, model_max_tokens=131_072)
    if args.tokenizer_only:
        return
    sequences = training_sequences(args.out, args.sequences, args.workers)
    print(f"{len(sequences)} training sequences in {time.time() - started:.0f} s", flush=True)
    model, tokens_seen = train(sequences, args)
    recall = measure_recall(model, args.out, documents=args.test_documents)
    niah = measure_niah(model, args.out, prompts=args.test_prompts)
    record = {
        "recall": recall,
        "niah": niah,
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": args.steps,
        "tokens": tokens_seen,
        "learning_rate": args.learning_rate,
        "distinct_sequences": len(sequences),
        "wall_seconds": round(time.time() - started),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or "cpu",
        "versions": {p: importlib.metadata.version(p) for p in ("torch", "transformers", "tokenizers", "numpy")}
        | {"python": platform.python_version()},
    }
    print(json.dumps(record, indent=2), flush=True)
    save(model, args.out, record)


def tokenizer_texts() -> Iterator[str]:
    """What the tokenizer learns from: the novel without its digits, RULER's word lists, frequent English."""
    for document in novel.short_pieces(TRAINING_SEED, "tokenizer", 2000):
        yield re.sub(r"\d+", " ", document.text)
    for noun in words("noun"):
        yield f" {noun} -{noun} {noun}"
    for word in (*words("adjective"), *words("verb")):
        yield f" {word} {word}"
    for word in COMMON_WORDS:
        yield f" {word}" * 60


def training_sequences(tokenizer_dir: Path, count: int, workers: int) -> NDArray[np.uint16]:
    """`count` sequences [count, 1024] of fresh text, each starting with BOS."""
    block = 64
    starts = range(0, count, block)
    make = partial(_sequence_block, tokenizer_dir, block)
    if workers < 2:
        return np.concatenate([make(start) for start in starts])[:count]
    with ProcessPoolExecutor(workers) as pool:
        return np.concatenate(list(pool.map(make, starts)))[:count]


def _sequence_block(tokenizer_dir: Path, count: int, start: int) -> NDArray[np.uint16]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    encoder = _encoder(tokenizer_dir)
    rng = Random(f"smoke-base/{start}")
    rows = np.empty((count, CONTEXT_TOKENS), np.uint16)
    for i in range(count):
        rows[i] = _row(encoder, rng, f"{start + i}")
    return rows


_encoders: dict[Path, Encoder] = {}


def _encoder(tokenizer_dir: Path) -> Encoder:
    if tokenizer_dir not in _encoders:
        _encoders[tokenizer_dir] = Encoder(tokenizer_dir)
    return _encoders[tokenizer_dir]


def _row(encoder: Encoder, rng: Random, id: str) -> NDArray[np.uint32]:
    """BOS and 1,023 tokens: the start of a book, the middle of one, or exercises with letters between them."""
    assert encoder.bos is not None
    assert encoder.eos is not None
    wanted = CONTEXT_TOKENS - 1
    u = rng.random()
    domain = rng.choice(("chronicle", "ledger"))
    if u < 0.45:
        tokens = encoder.encode(novel.book(rng, id, domain, 1400)).tokens[:wanted]
    elif u < 0.6:
        tokens = encoder.encode(novel.book(rng, id, domain, 4000)).tokens[2000 : 2000 + wanted]
    else:
        tokens = np.zeros(0, np.uint32)
        while len(tokens) < wanted:
            size = rng.choice((300, 600, 950))
            piece = encoder.encode(exercises.exercise(rng, id, int(size * novel.CHARACTERS_PER_TOKEN))).tokens
            tokens = np.concatenate([tokens, piece, np.array([encoder.eos], np.uint32)])
    return np.concatenate([np.array([encoder.bos], np.uint32), tokens[:wanted]])


def train(sequences: NDArray[np.uint16], args: argparse.Namespace) -> tuple[LlamaForCausalLM, int]:
    """A quarter of the steps at 256 tokens, the rest at 1,024; AdamW, linear warm-up, linear decay."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=4096,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=args.layers,
            num_attention_heads=args.heads,
            num_key_value_heads=args.heads,
            max_position_embeddings=CONTEXT_TOKENS,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
    ).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    data = torch.from_numpy(sequences.astype(np.int32))
    generator = torch.Generator().manual_seed(0)
    tokens_seen, began = 0, time.time()
    for step in range(args.steps):
        length = 256 if step < args.steps * args.short_share else CONTEXT_TOKENS
        rows = args.batch_tokens // length
        batch = data[torch.randint(len(data), (rows,), generator=generator), :length].to(args.device).long()
        for group in optimizer.param_groups:
            group["lr"] = args.learning_rate * min(1.0, (step + 1) / 100) * max(0.02, 1 - step / args.steps)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.device == "cuda"):
            logits = model(batch).logits
        loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        tokens_seen += batch.numel()
        if step % args.report_every == args.report_every - 1:
            recall = measure_recall(model, args.out, documents=8)
            print(f"step {step + 1} loss {loss.item():.3f} recall {recall} {time.time() - began:.0f} s", flush=True)
    return model, tokens_seen


@torch.no_grad()
def measure_recall(model: LlamaForCausalLM, tokenizer_dir: Path, documents: int) -> dict[str, float]:
    """Greedy accuracy by kind on 1,024-token sequences of unseen books and exercises; `n` counts recall tokens."""
    encoder = _encoder(tokenizer_dir)
    right: dict[str, list[int]] = {}
    for document in _unseen(documents):
        encoded = encoder.encode(document)
        assert encoded.kinds is not None
        assert encoded.distances is not None
        for start in range(0, max(1, len(encoded.tokens) - CONTEXT_TOKENS + 2), CONTEXT_TOKENS - 1):
            piece = slice(start, start + CONTEXT_TOKENS - 1)
            tokens = torch.tensor([[encoder.bos, *encoded.tokens[piece].tolist()]], device=model.device)
            positions = np.arange(tokens.shape[1] - 1)
            kinds = resolve_kinds(encoded.kinds[piece], encoded.distances[piece], positions, CONTEXT_TOKENS)
            hits = (model(tokens).logits[0, :-1].argmax(-1) == tokens[0, 1:]).cpu().numpy()
            for kind in np.unique(kinds):
                right.setdefault(Kind(kind).name.lower(), []).extend(hits[kinds == kind].tolist())
            right.setdefault(f"short_recall_{document.domain}", []).extend(
                hits[kinds == Kind.SHORT_RECALL].tolist()
            )
    accuracies = {kind: round(float(np.mean(values)), 4) for kind, values in sorted(right.items()) if values}
    return accuracies | {"n": len(right["short_recall"])}


def _unseen(documents: int) -> Iterator[Document]:
    yield from novel.books(TEST_SEED, "test", documents, 5000)
    yield from novel.short_pieces(TEST_SEED, "test", 4 * documents)


@torch.no_grad()
def measure_niah(model: LlamaForCausalLM, tokenizer_dir: Path, prompts: int) -> dict[str, float]:
    """Share of prompts whose exact number is generated greedily: RULER's niah form in the novel's own prose."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(tokenizer_dir))
    result: dict[str, float] = {}
    for distractors in (0, 3):
        for length in (300, 900):
            hits = 0
            for i in range(prompts):
                prompt, answer = niah_prompt(Random(f"niah/{distractors}/{length}/{i}"), length, distractors)
                ids = tokenizer(prompt, return_tensors="pt")["input_ids"].to(model.device)
                out = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=1)
                hits += answer in tokenizer.decode(out[0, ids.shape[1] :])
            result[f"{distractors + 1}_needles_{length}_tokens"] = hits / prompts
    return result


def niah_prompt(rng: Random, tokens: int, distractors: int) -> tuple[str, str]:
    """A niah prompt of about `tokens` tokens with one wanted needle among `distractors` others, and its answer."""
    needles = [exercises.key_and_value(rng, "number") for _ in range(distractors + 1)]
    sentences = re.split(r"(?<=\.) ", novel.haystack_text(rng.randrange(10**6), int((tokens - 100) * novel.CHARACTERS_PER_TOKEN)))
    for key, value in needles:
        place = rng.randint(0, len(sentences))
        sentences.insert(place, f"One of the special magic numbers for {key} is: {value}.")
    key, value = needles[0]
    return (
        "A special magic number is hidden within the following text. Make sure to memorize it. "
        f"I will quiz you about the number afterwards.\n{' '.join(sentences)}\n"
        f"What is the special magic number for {key} mentioned in the provided text? "
        f"The special magic number for {key} mentioned in the provided text is"
    ), value


def save(model: LlamaForCausalLM, out_dir: Path, record: dict[str, Any]) -> None:
    """bf16 weights with config, and how they were made."""
    assert all(math.isfinite(float(p.sum())) for p in model.parameters())
    model.to(torch.bfloat16).save_pretrained(out_dir)
    (out_dir / "training-record.json").write_text(json.dumps(record, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--out", type=Path, default=smoke_base_dir())
    parser.add_argument("--device", default="cuda" if cuda else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--sequences", type=int, default=60_000, help="distinct training sequences")
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--short-share", type=float, default=0.25, help="share of the steps at 256 tokens")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report-every", type=int, default=250)
    parser.add_argument("--test-documents", type=int, default=24)
    parser.add_argument("--test-prompts", type=int, default=100)
    parser.add_argument("--new-tokenizer", action="store_true", help="learn the tokenizer again though it is there")
    parser.add_argument("--tokenizer-only", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
