"""The configuration of a model in a plan, before any of it is fetched or made. Loads no torch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokenweight.assets import shipped_config
from tokenweight.context.extend import Extend
from tokenweight.pipeline.stage import Artifact, HubModel, LocalModel
from tokenweight.training.flops import MLP_MATRICES, attention_widths
from tokenweight.training.stages import Initialize, Pretrain, Train

LLAMA3_8B_ID, LLAMA31_8B = "meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.1-8B"
LLAMA32_1B, LLAMA32_3B = "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B"
PHI2_ID = "microsoft/phi-2"

# The paper's models: a shipped configuration, and what is other in the config.json of their repository.
_PUBLISHED: dict[str, tuple[str, dict[str, int]]] = {
    LLAMA3_8B_ID: ("llama3-8b", {}),
    LLAMA31_8B: ("llama3-8b", {}),
    LLAMA32_1B: ("llama3.2-1b", {}),
    LLAMA32_3B: (
        "llama3.2-1b",
        {"hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24, "head_dim": 128},
    ),
    PHI2_ID: ("phi-2", {}),
}

_FIELDS = (
    "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "vocab_size",
)  # fmt: skip

_NAMED = {
    "family": "model_type", "layers": "num_hidden_layers", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "tie_embeddings": "tie_word_embeddings",
}  # fields of Architecture, as transformers calls them  # fmt: skip


def config_of(artifact: Artifact) -> Any | None:
    """Fields of the model's transformers configuration; None where it is not known before the model is there."""
    match artifact.stage:
        case HubModel() as stage:
            if stage.repo_id in _PUBLISHED:
                return published_config(stage.repo_id)
            from huggingface_hub import try_to_load_from_cache

            cached = try_to_load_from_cache(stage.repo_id, "config.json", revision=stage.revision)
            return _of_file(Path(cached)) if isinstance(cached, str) else None
        case LocalModel():
            return _of_file(Path(artifact.sources["sha256"] or "") / "config.json")
        case Extend() | Train():
            return config_of(artifact.inputs["model"])
        case Initialize() as stage:
            return _of_values(stage.config)
        case Pretrain() as stage:
            values = {_NAMED.get(name, name): value for name, value in stage.architecture.model_dump().items()}
            return _of_values({**values, "vocab_size": _vocabulary(artifact.inputs["tokenizer"].sources["sha256"])})
    return None


def parameters(config: Any) -> int | None:
    """Parameters of the model's matrices: embeddings, layers, head; None for a family that is not known here."""
    if config.model_type not in MLP_MATRICES:
        return None
    width, (query_width, key_width) = config.hidden_size, attention_widths(config)
    layer = 2 * width * (query_width + key_width) + MLP_MATRICES[config.model_type] * width * config.intermediate_size
    tables = 1 if config.tie_word_embeddings else 2
    return int(config.num_hidden_layers * layer + tables * config.vocab_size * width)


@cache
def published_config(repo_id: str) -> Any:
    """Fields of the configuration of one of the paper's models; KeyError for others."""
    name, changes = _PUBLISHED[repo_id]
    return _of_values({**json.loads(shipped_config(name).read_text()), **changes})


@cache
def _of_file(path: Path) -> Any | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return _of_values(values) if isinstance(values, dict) else None


def _of_values(values: dict[str, Any]) -> Any | None:
    """None where a field that counts is not there; a configuration leaves out what is the family's default."""
    heads = values.get("num_attention_heads")
    filled = {"num_key_value_heads": heads, "tie_word_embeddings": False, **values}
    return SimpleNamespace(**filled) if all(filled.get(name) for name in _FIELDS) else None


@cache
def _vocabulary(tokenizer_dir: str | None) -> int | None:
    """Entries of a tokenizer.json, added ones included."""
    try:
        content = json.loads((Path(tokenizer_dir or "") / "tokenizer.json").read_text(encoding="utf-8"))
        ids = [*content["model"]["vocab"].values(), *(token["id"] for token in content["added_tokens"])]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return int(max(ids)) + 1
