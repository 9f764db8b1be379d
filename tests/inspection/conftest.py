"""The shipped base, an extended copy of it, texts to inspect, and one finished inspection."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tokenweight.assets import smoke_base_dir
from tokenweight.context.extend import extend
from tokenweight.corpus import novel
from tokenweight.inspection.compute import inspect
from tokenweight.inspection.request import Options
from tokenweight.recipes.schema import Extension

NASTY = (
    "</script><script>alert(1)</script><!-- &amp; \"q\" 'q' `t`\n\n\tTabs 👩‍👩‍👧 e\u0301 naïve Ωμ 中文 \u202eevil\u202c\n"
    "\\textbf{x} $a_b^c$ #5 50% ~ [k] *l* -- ,, {{ 7*7 }} {% raw %} <% x %> << y >> Ħ \u00ad \u2028 <|end_of_text|>  z\n"
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def base_dir() -> Path:
    return smoke_base_dir()


@pytest.fixture(scope="session")
def extended_dir(base_dir, tmp_path_factory) -> Path:
    """The base with a context of 2048 tokens."""
    out = tmp_path_factory.mktemp("extended")
    extend(base_dir, Extension(long_tokens=2048, rope_theta=30_000.0), out)
    return out / "model"


@pytest.fixture(scope="session")
def novel_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "novel.txt"
    path.write_text(next(novel.books(5, "test", 1, 6000)).text, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def nasty_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "na_sty & <b>.txt"
    path.write_text(NASTY, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def inspected(base_dir):
    """Inspect a text with the base: `inspected(path, **options)` is the content of inspection.json."""

    def run(text: Path, checkpoint: Path = base_dir, **options) -> dict[str, Any]:
        return inspect(checkpoint, text, Options(device="cpu", **options))[0]

    return run
