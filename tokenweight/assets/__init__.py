"""Data files of the package: the tiny base model that scripts/make_smoke_base.py made, configurations of real models."""

from pathlib import Path

SHIPPED_CONFIGS = ("llama3-8b", "llama3.2-1b", "phi-2")  # as published, by what `base: random` calls them


def shipped_config(name: str) -> Path:
    """The config.json of one of SHIPPED_CONFIGS, as transformers writes it."""
    return Path(__file__).parent / "model-configs" / f"{name}.json"
