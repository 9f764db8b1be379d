"""Token weighting in a plain HF Trainer: continue training the shipped tiny Llama on a text file.

    python examples/weight_any_trainer.py book.txt [steps]

The model scores itself on windows of 256 tokens (unfrozen, sparse: the paper's kappa of 0.2) while it trains on
sequences of 1024.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from tokenweight.assets import smoke_base_dir
from tokenweight.recipes.schema import Weighting
from tokenweight.weighting import add_token_weighting

LONG_TOKENS = 1024

book, steps = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20
tokenizer = AutoTokenizer.from_pretrained(smoke_base_dir())
model = AutoModelForCausalLM.from_pretrained(smoke_base_dir(), dtype=torch.float32)
ids = torch.tensor(tokenizer(book.read_text(encoding="utf-8"), add_special_tokens=False)["input_ids"])
sequences = ids[: len(ids) // LONG_TOKENS * LONG_TOKENS].view(-1, LONG_TOKENS)

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="weighted",
        max_steps=steps,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=3e-4,
        logging_steps=5,
        report_to=[],
        save_strategy="no",
    ),
    train_dataset=[{"input_ids": sequence} for sequence in sequences],
)
add_token_weighting(trainer, Weighting(postprocessing="sparse", kappa=0.2), short_tokens=256, stride_tokens=192)
trainer.train()
