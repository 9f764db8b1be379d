"""A tiny random Llama with a small byte-level tokenizer that adds BOS, and evaluation settings for it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenweight.evaluation.bbh import BBH_TASKS
from tokenweight.evaluation.mmlu import MMLU_SUBJECTS
from tokenweight.recipes.schema import (
    Bbh,
    Evaluation,
    Execution,
    FilesCorpus,
    Helmet,
    LmEval,
    LongBench,
    Mmlu,
    Nolima,
    NovelCorpus,
    Perplexity,
    Phrase,
    Planted,
    Pmi,
    Ruler,
)

sys.path.insert(0, str(Path(__file__).parent))

CONTEXT_TOKENS = 512
TEXT = (
    "The quick brown fox jumps over the lazy dog. Question and answer, choices A. B. C. D. and numbers 0123456789. "
    "So the answer is True. Let's think step by step. The following are multiple choice questions (with answers)."
)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoint directory with its tokenizer (BOS added by the tokenizer)."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    directory = tmp_path_factory.mktemp("checkpoint")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<bos>", "<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>")
    fast.save_pretrained(directory)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=CONTEXT_TOKENS, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1,
        initializer_range=0.3,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def other(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model of the same vocabulary."""
    import shutil

    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    directory = tmp_path_factory.mktemp("other")
    shutil.copytree(checkpoint, directory, dirs_exist_ok=True)
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(checkpoint)).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MMLU (all subjects), BBH (all tasks) and text files, half of them short, in their official layouts."""
    root = tmp_path_factory.mktemp("data")
    for split, count in (("dev", 5), ("test", 3)):
        (root / "mmlu" / split).mkdir(parents=True)
        for number, subject in enumerate(MMLU_SUBJECTS):
            with (root / "mmlu" / split / f"{subject}_{split}.csv").open("w", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(["question", "choice0", "choice1", "choice2", "choice3", "answer"])
                for i in range(count):
                    writer.writerow([f"What is {number} + {i}?", *(number + i + k for k in range(4)), (number + i) % 4])
    (root / "bbh").mkdir()
    for task in BBH_TASKS:
        examples = [{"input": f"not ( True ) and {i} is", "target": "False"} for i in range(2)]
        (root / "bbh" / f"{task}.json").write_text(json.dumps({"canary": "", "examples": examples}))
    (root / "books").mkdir()
    for i, words in enumerate((900, 8, 700, 8, 800, 8)):
        text = " ".join(f"word{(i * 7 + k * k) % 97}" for k in range(words))
        (root / "books" / f"{i}.txt").write_text(text)
    return root


@pytest.fixture
def evaluation(data: Path) -> Evaluation:
    return Evaluation(
        precision="fp32",
        ruler=Ruler(lengths_tokens=(256, 512), samples=2),
        longbench=LongBench(split_tokens=256),
        mmlu=Mmlu(data=str(data / "mmlu"), samples=2),
        bbh=Bbh(data=str(data / "bbh"), samples=1, max_new_tokens=8),
        perplexity=Perplexity(
            lengths_tokens=(128, 256), corpus=FilesCorpus(path=str(data / "books"), validation_documents=4)
        ),
        pmi=Pmi(short_tokens=128, stride_tokens=96),
        phrase=Phrase(),
        planted=Planted(corpus=NovelCorpus(), sequences=2, short_tokens=128, stride_tokens=96),
        helmet=Helmet(),
        nolima=Nolima(),
        lm_eval=LmEval(),
    )


@pytest.fixture(scope="session")
def execution() -> Execution:
    return Execution(device="cpu", eval_batch_sequences=4)


@pytest.fixture(scope="session")
def context_tokens() -> int:
    return CONTEXT_TOKENS


@pytest.fixture(scope="session")
def prompt_record() -> Callable[..., dict[str, Any]]:
    """Makes a line of prompts.jsonl."""

    def record(doc_id: int, prompt: str, n_prompt_tokens: int, **changes: Any) -> dict[str, Any]:
        """A line of prompts.jsonl."""
        return {
            "doc_id": doc_id,
            "prompt": prompt,
            "references": ["7"],
            "max_new_tokens": 6,
            "n_prompt_tokens": n_prompt_tokens,
            "untruncated_tokens": n_prompt_tokens,
            "truncated": False,
            "length_words": None,
            "all_classes": None,
            "answer_prefix": "",
            **changes,
        }

    return record
