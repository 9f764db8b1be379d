"""A tiny random Llama with a tokenizer, and a chunk artifact for it."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tokenweight.context.extend import extend
from tokenweight.recipes.schema import Execution, Extension, Scorer, Training, Weighting
from tokenweight.training.stages import Train

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])])  # of scripts
from training_calls import TrainRequest  # noqa: E402

VOCABULARY, LONG, SHORT, STRIDE = 64, 64, 16, 12
BOS = 1


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def base_dir(tmp_path_factory) -> Path:
    """A random Llama with a context of 16 tokens."""
    return make_base(tmp_path_factory.mktemp("base"), VOCABULARY)


@pytest.fixture(scope="session")
def other_vocabulary_dir(tmp_path_factory) -> Path:
    """A model whose tokenizer knows one token more."""
    return make_base(tmp_path_factory.mktemp("other"), VOCABULARY + 1)


@pytest.fixture(scope="session")
def make_scorer(tmp_path_factory):
    """Other models with the same vocabulary: any field of the configuration may differ."""

    def make(**config_fields: Any) -> Path:
        return make_base(tmp_path_factory.mktemp("scorer"), VOCABULARY, **config_fields)

    return make


@pytest.fixture(scope="session")
def model_dir(base_dir, tmp_path_factory) -> Path:
    """The same, extended to 64 tokens."""
    out = tmp_path_factory.mktemp("extended")
    extend(base_dir, Extension(long_tokens=LONG, rope_theta=300_000.0), out)
    return out / "model"


@pytest.fixture(scope="session")
def chunk_dir(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("chunks")
    tokens = np.random.default_rng(0).integers(3, VOCABULARY, (40, LONG), dtype=np.uint32)
    tokens[:, 0] = BOS
    np.save(out / "tokens.npy", tokens)
    pq.write_table(pa.table({"sequence_id": range(40), "position": [0] * 40}), out / "sequences.parquet")
    (out / "accounting.json").write_text(f'{{"bos": true, "long_tokens": {LONG}}}')
    return out


@pytest.fixture
def unfrozen() -> Scorer:
    return Scorer(kind="unfrozen", short_tokens=SHORT, stride_tokens=STRIDE)


@pytest.fixture
def frozen() -> Scorer:
    return Scorer(kind="frozen", short_tokens=SHORT, stride_tokens=STRIDE)


@pytest.fixture
def make_request(model_dir, chunk_dir):
    def make(
        steps=3, sequences_per_step=4, weighting=None, scorer=None, score_dir=None, seed=0, **training
    ) -> TrainRequest:
        defaults = {"learning_rate": 1e-2, "warmup_steps": 1, "precision": "fp32"}
        return TrainRequest(
            model_dir=model_dir,
            chunk_dir=chunk_dir,
            score_dir=score_dir,
            stage=Train(
                training=Training(steps=steps, sequences_per_step=sequences_per_step, **{**defaults, **training}),
                weighting=weighting or Weighting(),
                scorer=scorer,
                seed=seed,
            ),
        )

    return make


@pytest.fixture
def inline() -> Execution:
    return Execution(device="cpu")


def make_base(folder: Path, vocabulary: int, **config_fields: Any) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {"<pad>": 0, "<s>": BOS, "</s>": 2, **{f"w{i}": i for i in range(3, vocabulary)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<pad>")),
        bos_token="<s>",
        eos_token="</s>",
    )
    tokenizer.save_pretrained(folder)
    fields = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": SHORT,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "attention_dropout": 0.1,
    }
    config = LlamaConfig(**{**fields, **config_fields})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(4.0)  # predictions that depend on the context
    model.save_pretrained(folder)
    return folder
