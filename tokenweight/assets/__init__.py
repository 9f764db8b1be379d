"""Data files of the package: tokenizers, the tiny base model of scripts/make_smoke_base.py, configurations of real models."""

from pathlib import Path

SHIPPED_CONFIGS = ("llama3-8b", "llama3.2-1b", "phi-2")  # as published, by what `base: random` calls them
SHIPPED_TOKENIZERS = ("books-8k",)  # scripts/make_mini_tokenizer.py made it


def shipped_config(name: str) -> Path:
    """The config.json of one of SHIPPED_CONFIGS, as transformers writes it."""
    return Path(__file__).parent / "model-configs" / f"{name}.json"


def smoke_base_dir() -> Path:
    """Directory of the shipped tokenizer and tiny base model, as transformers' Auto classes load it."""
    return Path(__file__).parent / "smoke-base"


def tokenizer_dir(given: str | None) -> Path:
    """Directory of a tokenizer: None is the smoke base's, a shipped one goes by its name, else a directory's path."""
    if given is None:
        return smoke_base_dir()
    return Path(__file__).parent / given if given in SHIPPED_TOKENIZERS else Path(given)
