"""Golden files and the shipped tokenizer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenweight.assets import smoke_base_dir
from tokenweight.evaluation.tokens import TokenCounter, token_counter

GOLDEN = Path(__file__).parents[2] / "golden" / "longbench"


@pytest.fixture(scope="session")
def counter() -> TokenCounter:
    """Of the shipped tokenizer, which adds BOS."""
    return token_counter(smoke_base_dir())


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with a golden file that a person can read; UPDATE_GOLDEN=1 writes it anew."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text, f"{path} differs; UPDATE_GOLDEN=1 writes it anew"

    return check
