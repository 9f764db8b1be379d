"""Tokenizers for the corpus tests: the shipped one (BOS) and a word-level one that adds no BOS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tokenweight.assets import smoke_base_dir
from tokenweight.corpus.encoding import Encoder


@pytest.fixture(scope="session")
def shipped() -> Encoder:
    return Encoder(smoke_base_dir())


@pytest.fixture(scope="session")
def no_bos_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One token per word `w0` ... `w999`; no BOS, no EOS."""
    directory = tmp_path_factory.mktemp("words")
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(1000)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return directory
