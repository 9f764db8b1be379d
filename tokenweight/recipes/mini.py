"""Scale `mini`: a 31 M-parameter Llama pre-trained by the pipeline on books and synthetic recall text, one GPU.

1024 tokens are extended to 4096, the paper's factor of four. What is not named here is the paper's.
"""

from __future__ import annotations

from typing import Any

from tokenweight.recipes.ablations import LLAMA31_8B, LLAMA32_1B, LLAMA32_3B
from tokenweight.recipes.cited import Settings, cite
from tokenweight.recipes.corpora import JUDGE
from tokenweight.recipes.scaling import Scaling
from tokenweight.recipes.schema import EchoCorpus, FilesCorpus, MixtureCorpus, MixturePart, NovelCorpus

_EIGHTH = "mini: an eighth of the paper's"
_SMALL = "mini: about an hour on one GPU"

TOKENIZER = "books-8k"  # shipped; scripts/make_mini_tokenizer.py made it

BOOKS = FilesCorpus(path="books", validation_documents=10)

# Rare long documents among many short ones, such as web pages.
WEB = FilesCorpus(path="web", validation_documents=10)

# Bare books teach a model of this size no retrieval, nor do books with the novel (docs/mini.md): the echoes make it
# look back, the novel (a sixth of its tokens are recalls; letters, and exercises in RULER's form, are two thirds of it)
# teaches what to look for. Their seeds are no evaluation's.
RECALL = NovelCorpus(seed=31, documents=4600, document_tokens=2000)
ECHOES = EchoCorpus(seed=32, documents=15_000, document_tokens=1000)
PRETRAINING = MixtureCorpus(
    parts=(
        MixturePart(corpus=BOOKS, share=0.25),
        MixturePart(corpus=RECALL, share=0.5, packed=True),
        MixturePart(corpus=ECHOES, share=0.25, packed=True),
    )
)


def _pretrained(origin: str, key: str, **shape: Any) -> Settings:
    """A model trained by the pipeline under `key`; `shape` changes the architecture of the base."""
    architecture = {
        "hidden_size": 512, "intermediate_size": 1536, "layers": 8, "heads": 8, "kv_heads": 8,
        "rope_theta": 10_000.0, "tie_embeddings": True,
    }  # fmt: skip
    return cite(
        origin,
        {
            key: {
                "kind": "pretrain",
                "tokenizer": TOKENIZER,
                "architecture": {**architecture, **shape},
                "corpus": PRETRAINING.model_dump(),
                "context_tokens": 1024,
                "training": {
                    "steps": 3200, "sequences_per_step": 32, "learning_rate": 1e-3, "warmup_steps": 100,
                    "beta2": 0.98, "precision": "bf16", "final_learning_rate_share": 0.05,
                },
            }
        },
    )  # fmt: skip


BASE: Settings = _pretrained("mini: pre-trained by the pipeline", "base")

# About as large as the base, of Phi-2's architecture: heads of 80.
SECOND_BASE: Settings = _pretrained(
    "mini: a small Phi, pre-trained by the pipeline", "base", family="phi", hidden_size=640
)


def _scorer(size: str, **shape: int) -> Settings:
    return _pretrained(f"mini: a Llama for the {size}, pre-trained by the pipeline", "scorer.model", **shape)


SCORERS = {  # an eighth and three eighths of the base's blocks, as 1B and 3B of 8B; another seed for 3.1 of 3
    LLAMA32_1B: _scorer("1B", hidden_size=256, intermediate_size=768, layers=4, heads=4, kv_heads=4),
    LLAMA32_3B: _scorer("3B", hidden_size=384, intermediate_size=1152, layers=5, heads=6, kv_heads=6),
    LLAMA31_8B: {**_scorer("8B"), **cite("mini: another seed than the base", {"scorer.model.seed": 1})},
}

STEPS = 60
SEQUENCES_PER_STEP = 32

EXTENSION: Settings = {
    **cite("mini: 10,000 x 30.6, the paper's factor", {"extension.rope_theta": 306_000.0}),
    **cite(_EIGHTH, {"extension.long_tokens": 4096}),
}

DATA: Settings = {
    **cite("mini: a directory of books", {"corpus": BOOKS.model_dump()}),
    **cite(_EIGHTH, {"chunking.long_tokens": 4096}),
    **cite("mini: what the steps read", {"chunking.sequences": STEPS * SEQUENCES_PER_STEP}),
}

LCDE: Settings = cite(_EIGHTH, {"chunking.long_document_tokens": 1024})

RARE_LONG: Settings = {
    **cite("mini: a directory of texts most of which are short, as FineWeb's are", {"corpus": WEB.model_dump()}),
    **cite("mini: what the steps read", {"chunking.sequences": STEPS * SEQUENCES_PER_STEP}),
}

TRAINING: Settings = {
    **cite(_SMALL, {"training.steps": STEPS, "training.sequences_per_step": SEQUENCES_PER_STEP}),
    **cite("mini: a small model needs larger steps", {"training.learning_rate": 3e-4}),
    **cite(_SMALL, {"training.warmup_steps": 10}),
}

WINDOWS: Settings = cite(_EIGHTH, {"scorer.short_tokens": 1024, "scorer.stride_tokens": 768})

EVALUATION: Settings = {
    **cite(_EIGHTH, {
        "evaluation.ruler.lengths_tokens": (1024, 2048, 3072, 4096),
        "evaluation.perplexity.lengths_tokens": (1024, 2048, 3072, 4096),
        "evaluation.longbench.split_tokens": 1024,
        "evaluation.pmi.short_tokens": 1024,
        "evaluation.pmi.stride_tokens": 768,
        "evaluation.planted.short_tokens": 1024,
        "evaluation.planted.stride_tokens": 768,
    }),
    **cite(_SMALL, {
        "evaluation.ruler.samples": 50,
        "evaluation.mmlu.samples": 20,
        "evaluation.longbench.max_new_tokens": 64,
        "evaluation.bbh.max_new_tokens": 256,
        "evaluation.planted.corpus": JUDGE.model_copy(update={"document_tokens": 12_000}).model_dump(),
        "evaluation.planted.sequences": 64,
    }),
    **cite("mini: shipped files", {
        "evaluation.ruler.haystack": None, "evaluation.ruler.squad": None, "evaluation.ruler.hotpotqa": None,
        "evaluation.longbench.data": None, "evaluation.mmlu.data": None, "evaluation.bbh.data": None,
    }),
    **cite("mini: books kept back", {"evaluation.perplexity.corpus": BOOKS.model_dump()}),
    **cite("mini: round the largest difference in a book kept back", {
        "evaluation.phrase.file": None, "evaluation.phrase.words": None,
    }),
}  # fmt: skip

SCALING = Scaling(
    base=BASE,
    extension=EXTENSION,
    data=DATA,
    lcde=LCDE,
    rare_long=RARE_LONG,
    training=TRAINING,
    windows=WINDOWS,
    scorers=SCORERS,
    evaluation=EVALUATION,
    second_base=SECOND_BASE,
)
