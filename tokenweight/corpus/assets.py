"""Where the files shipped with the package lie."""

from importlib.resources import files
from pathlib import Path


def smoke_base_dir() -> Path:
    """Directory of the shipped tokenizer and tiny base model, as transformers' Auto classes load it."""
    return Path(str(files("tokenweight.assets"))) / "smoke-base"


SHIPPED_TOKENIZERS = ("books-8k",)


def shipped_tokenizer_dir(name: str) -> Path:
    """Directory of a shipped tokenizer by its name; scripts/make_mini_tokenizer.py made it."""
    return Path(str(files("tokenweight.assets"))) / name


def tokenizer_dir(given: str | None) -> Path:
    """Directory of a tokenizer: None is the smoke base's, a shipped one goes by its name, else a directory's path."""
    if given is None:
        return smoke_base_dir()
    return shipped_tokenizer_dir(given) if given in SHIPPED_TOKENIZERS else Path(given)
