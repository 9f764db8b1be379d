"""Make the tokenizer and the tiny base model that the package ships (tokenweight/assets/smoke-base), from nothing.

    python scripts/make_smoke_base.py [--out DIR] [--device cpu|cuda]

Learns a 4,096-entry byte-level BPE on the synthetic novel, trains a Llama on fresh novel text with a curriculum of
growing lengths, measures how often it recalls facts of unseen text, and writes model, tokenizer, training-record.json.
Minutes on a GPU, hours on a CPU (`--step-share 0.01` shows that it runs).

In the first phases some rows are one random segment repeated: without them a model of this size stays for
thousands of steps at naming any fact of the text; with them it learns to look back within the first phase.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from learn_tokenizer import COMMON_WORDS, save_tokenizer, train_tokenizer
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from tokenweight.assets import smoke_base_dir
from tokenweight.corpus import novel
from tokenweight.corpus.documents import Document, Kind
from tokenweight.corpus.encoding import Encoder, resolve_kinds
from tokenweight.corpus.manuscript import words

CONTEXT_TOKENS = 1024


@dataclass(frozen=True)
class Phase:
    """One length of the curriculum: `sequences` distinct rows of `tokens`, drawn `rows` at a time for `steps`."""

    tokens: int
    steps: int
    rows: int
    sequences: int
    exercise_share: float  # rows in RULER's prompt form; the rest are books
    repeat_share: float  # rows replaced by a random segment, repeated


PHASES = (
    Phase(128, 3500, 64, 40_000, 0.15, 0.3),
    Phase(256, 2500, 48, 40_000, 0.3, 0.1),
    Phase(512, 1500, 32, 24_000, 0.3, 0.0),
    Phase(CONTEXT_TOKENS, 3500, 24, 40_000, 0.35, 0.0),
)
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
    data = training_data(args.out, args.workers, args.step_share)
    print(f"training data after {time.time() - started:.0f} s", flush=True)
    model = train(data, args)
    record = {
        "recall": measure_recall(model, args.out, documents=24),
        "niah": measure_niah(model, args.out, prompts=args.test_prompts),
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": sum(int(phase.steps * args.step_share) for phase in PHASES),
        "tokens": sum(int(phase.steps * args.step_share) * phase.rows * phase.tokens for phase in PHASES),
        "learning_rate": args.learning_rate,
        "seed": args.seed,
        "phases": [asdict(phase) for phase in PHASES],
        "wall_seconds": round(time.time() - started),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
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


def training_data(tokenizer_dir: Path, workers: int, share: float) -> list[NDArray[np.uint16]]:
    """For each phase the rows [sequences, tokens] of fresh text, each starting with BOS."""
    _encoder(tokenizer_dir)
    with ProcessPoolExecutor(max(1, workers)) as pool:
        futures = [
            [pool.submit(_rows, tokenizer_dir, phase, block) for block in range(_blocks(phase, share))]
            for phase in PHASES
        ]
        return [np.concatenate([block.result() for block in blocks]) for blocks in futures]


BLOCK_ROWS = 64


def _blocks(phase: Phase, share: float) -> int:
    return max(1, int(phase.sequences * share) // BLOCK_ROWS)


def _rows(tokenizer_dir: Path, phase: Phase, block: int) -> NDArray[np.uint16]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rng = Random(f"smoke-base/{phase.tokens}/{block}")
    return np.stack([_row(_encoder(tokenizer_dir), rng, phase) for _ in range(BLOCK_ROWS)])


@cache
def _encoder(tokenizer_dir: Path) -> Encoder:
    return Encoder(tokenizer_dir)


def _row(encoder: Encoder, rng: Random, phase: Phase) -> NDArray[np.uint16]:
    """BOS and text: the start of a book, at full length also the middle of one, or exercises one after another."""
    assert encoder.bos is not None
    assert encoder.eos is not None
    wanted = phase.tokens - 1
    u = rng.random()
    if u < phase.exercise_share:
        tokens = np.zeros(0, np.uint32)
        while len(tokens) < wanted:
            size = rng.randint(110, max(120, min(950, phase.tokens)))
            piece = encoder.encode(novel.exercise(rng, "", int(size * 3.6))).tokens
            tokens = np.concatenate([tokens, piece, np.array([encoder.eos], np.uint32)])
    else:
        domain = rng.choice(("chronicle", "ledger"))
        skipped = 2000 if phase.tokens == CONTEXT_TOKENS and u > 0.85 else 0
        tokens = encoder.encode(novel.book(rng, "", domain, int((skipped + phase.tokens) * 1.3) + 40)).tokens[skipped:]
    return np.concatenate([[encoder.bos], tokens[:wanted]]).astype(np.uint16)


def train(data: list[NDArray[np.uint16]], args: argparse.Namespace) -> LlamaForCausalLM:
    """AdamW over the phases: linear warm-up, constant, in the second half linear decay."""
    torch.manual_seed(args.seed)
    model: LlamaForCausalLM = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=4096,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT_TOKENS,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
    ).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    generator = torch.Generator().manual_seed(args.seed)
    steps = [max(1, int(phase.steps * args.step_share)) for phase in PHASES]
    step, began = 0, time.time()
    for phase, phase_steps, rows in zip(PHASES, steps, data, strict=True):
        for _ in range(phase_steps):
            batch = _batch(phase, rows, generator).to(args.device)
            rate = min(1.0, (step + 1) / 100, 2 * (1 - step / sum(steps)) + 0.02)
            for group in optimizer.param_groups:
                group["lr"] = args.learning_rate * rate
            with torch.autocast(args.device, torch.bfloat16, enabled=args.device == "cuda"):
                logits = model(batch).logits
            loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 500 == 0 or step == sum(steps):
                recall = measure_recall(model, args.out, documents=4)
                print(f"step {step} loss {loss.item():.3f} recall {recall} {time.time() - began:.0f} s", flush=True)
    return model


def _batch(phase: Phase, rows: NDArray[np.uint16], generator: torch.Generator) -> torch.Tensor:
    """Random rows [rows, tokens] of the phase, the first of them overwritten by repeated random segments."""
    chosen = torch.randint(len(rows), (phase.rows,), generator=generator)
    batch = torch.from_numpy(rows[chosen.numpy()].astype(np.int64))
    repeated = int(phase.rows * phase.repeat_share)
    if repeated:
        length = int(torch.randint(8, phase.tokens // 2, (1,), generator=generator))
        segment = torch.randint(2, 4096, (repeated, length), generator=generator)
        batch[:repeated, 1:] = segment.repeat(1, phase.tokens // length + 1)[:, : phase.tokens - 1]
    return batch


@torch.no_grad()
def measure_recall(model: LlamaForCausalLM, tokenizer_dir: Path, documents: int) -> dict[str, float]:
    """Greedy accuracy by kind on 1,024-token sequences of unseen books and exercises; `n` counts recall tokens."""
    encoder = _encoder(tokenizer_dir)
    right: dict[str, list[int]] = {}
    for document in _unseen(documents):
        encoded = encoder.encode(document)
        if encoded.kinds is None or encoded.distances is None:
            continue  # an exercise without labelled tokens
        for start in range(0, max(1, len(encoded.tokens) - CONTEXT_TOKENS + 2), CONTEXT_TOKENS - 1):
            piece = slice(start, start + CONTEXT_TOKENS - 1)
            tokens = torch.tensor([[encoder.bos, *encoded.tokens[piece].tolist()]], device=model.device)
            positions = np.arange(tokens.shape[1] - 1)
            kinds = resolve_kinds(encoded.kinds[piece], encoded.distances[piece], positions, CONTEXT_TOKENS)
            hits = (model(tokens).logits[0, :-1].argmax(-1) == tokens[0, 1:]).cpu().numpy()
            for kind in np.unique(kinds):
                right.setdefault(Kind(kind).name.lower(), []).extend(hits[kinds == kind].tolist())
            right.setdefault(f"short_recall_{document.domain}", []).extend(hits[kinds == Kind.SHORT_RECALL].tolist())
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
    needles = [novel.key_and_value(rng, "number") for _ in range(distractors + 1)]
    sentences = re.split(
        r"(?<=\.) ", novel.haystack_text(rng.randrange(10**6), int((tokens - 100) * novel.CHARACTERS_PER_TOKEN))
    )
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


def save(model: Any, out_dir: Path, record: dict[str, Any]) -> None:
    """bf16 weights with config, and how they were made."""
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    model.to(torch.bfloat16).save_pretrained(out_dir)
    (out_dir / "training-record.json").write_text(json.dumps(record, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--out", type=Path, default=smoke_base_dir())
    parser.add_argument("--device", default="cuda" if cuda else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--step-share", type=float, default=1.0, help="share of each phase's steps and text")
    parser.add_argument("--learning-rate", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--test-prompts", type=int, default=100)
    parser.add_argument("--new-tokenizer", action="store_true", help="learn the tokenizer again though it is there")
    parser.add_argument("--tokenizer-only", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
