"""Whether two models read the same token ids: the identity of a tokenizer's vocabulary."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer of a directory; UserError where there is none."""
    from transformers import AutoTokenizer

    from tokenweight.training.quiet import quiet_transformers

    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{directory}: no tokenizer can be loaded ({reason}); give a directory with one") from error


def vocabulary_sha256(tokenizer: Any) -> str:
    """SHA-256 of the token-to-id map: equal for tokenizers whose ids mean the same tokens."""
    entries = sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0]))
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


def bos_token_id(tokenizer: Any, config: Any) -> int | None:
    """The id that begins a sequence where the tokenizer has such a token."""
    from_config = getattr(config, "bos_token_id", None)
    return tokenizer.bos_token_id if tokenizer.bos_token_id is not None else from_config
