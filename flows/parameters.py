"""From a flow's flat parameters to the library's objects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from tokenweight.pipeline import Store
from tokenweight.recipes import Inputs

Corpus = Annotated[str | None, Field(description="Directory of .txt, .jsonl or .parquet; None: the recipe's corpus")]
Base = Annotated[
    str | None, Field(description='Checkpoint directory; "pretrain"; "random:CONFIG"; None: the recipe\'s model')
]
Tokenizer = Annotated[str | None, Field(description="Directory with tokenizer.json, for base pretrain or random")]
Mmlu = Annotated[str | None, Field(description='Directory with dev/ and test/, or "hub"; None: the scale\'s own')]
Bbh = Annotated[str | None, Field(description='Directory of the official JSON, or "hub"; None: the scale\'s own')]
LongBench = Annotated[
    str | None, Field(description='Directory of the official JSONL, or "hub"; None: the scale\'s own')
]
Haystack = Annotated[str | None, Field(description="RULER's haystack: directory of .txt, or JSON with `text`")]
Squad = Annotated[str | None, Field(description="SQuAD dev-v2.0 JSON")]
HotpotQa = Annotated[str | None, Field(description="HotpotQA dev-distractor JSON")]


def store_at(path: str) -> Store:
    """The store at a path, which need not exist yet."""
    return Store(Path(path).expanduser().resolve())


def inputs_from(settings: list[str] | None, **paths: str | None) -> Inputs:
    """A user's inputs from flat parameters; empty text means not given (the UI sends it)."""
    return Inputs(settings=tuple(settings or ()), **{key: value or None for key, value in paths.items()})
