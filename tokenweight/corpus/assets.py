"""Where the files shipped with the package lie."""

from importlib.resources import files
from pathlib import Path


def smoke_base_dir() -> Path:
    """Directory of the shipped tokenizer and tiny base model, as transformers' Auto classes load it."""
    return Path(str(files("tokenweight.assets"))) / "smoke-base"
