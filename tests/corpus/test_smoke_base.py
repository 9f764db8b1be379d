"""The shipped base model truly uses its context."""

from __future__ import annotations

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from tokenweight.assets import smoke_base_dir
from tokenweight.corpus import novel
from tokenweight.corpus.documents import Kind
from tokenweight.corpus.encoding import Encoder, resolve_kinds


def test_recalls_facts_of_unseen_text(shipped: Encoder) -> None:
    model = AutoModelForCausalLM.from_pretrained(smoke_base_dir(), dtype=torch.float32).eval()
    context = model.config.max_position_embeddings
    assert context == 1024
    right = []
    for document in novel.books(77, "test", 4, 6000):
        encoded = shipped.encode(document)
        assert encoded.kinds is not None
        assert encoded.distances is not None
        for start in range(0, len(encoded.tokens) - context + 2, context - 1):
            piece = slice(start, start + context - 1)
            tokens = torch.tensor([[shipped.bos, *encoded.tokens[piece].tolist()]])
            with torch.no_grad():
                hits = (model(tokens).logits[0, :-1].argmax(-1) == tokens[0, 1:]).numpy()
            kinds = resolve_kinds(encoded.kinds[piece], encoded.distances[piece], np.arange(context - 1), context)
            right.append(hits[kinds == Kind.SHORT_RECALL])
    recalled = np.concatenate(right)
    assert len(recalled) > 2000
    assert recalled.mean() >= 0.97


def test_is_small() -> None:
    size = sum(path.stat().st_size for path in smoke_base_dir().iterdir())
    assert size < 3 * 2**20
