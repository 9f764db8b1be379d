"""Scale `smoke`: the paper's Llama-3 experiment at an eighth of its lengths, on the shipped tiny Llama and the novel.

What is not named here is the paper's.
"""

from __future__ import annotations

from tokenweight.recipes.ablations import LLAMA31_8B, LLAMA32_1B, LLAMA32_3B
from tokenweight.recipes.cited import Settings, cite
from tokenweight.recipes.corpora import JUDGE
from tokenweight.recipes.scaling import Scaling
from tokenweight.recipes.schema import NovelCorpus

_EIGHTH = "smoke: an eighth of the paper's"
_SMALL = "smoke: small, for minutes on 2 CPU cores"

NOVEL = NovelCorpus(seed=1, documents=64, document_tokens=12_000, validation_documents=8)

STEPS = 20
SEQUENCES_PER_STEP = 2

BASE: Settings = cite(
    "smoke: the shipped tiny Llama (1024 tokens)", {"base": {"kind": "shipped", "context_tokens": 1024}}
)

# A base trained by the pipeline itself on the recipe's corpus (`--base pretrain`), as small as the shipped one.
PRETRAIN = {
    "kind": "pretrain",
    "architecture": {"hidden_size": 128, "intermediate_size": 256, "layers": 2, "heads": 2, "kv_heads": 2},
    "context_tokens": 1024,
    "training": {
        "steps": 60, "sequences_per_step": 4, "learning_rate": 1e-3, "warmup_steps": 10, "beta2": 0.98,
        "precision": "fp32", "final_learning_rate_share": 0.1,
    },
}  # fmt: skip

# A model of Phi-2's architecture, small (heads of 80, as Phi-2's), pre-trained for some seconds: it stands for no real model.
SECOND_BASE: Settings = cite(
    "smoke: a tiny Phi, pre-trained by the pipeline (1024 tokens)",
    {
        "base": {
            **PRETRAIN,
            "architecture": {**PRETRAIN["architecture"], "family": "phi", "hidden_size": 160},  # type: ignore[dict-item]
            "corpus": NOVEL.model_dump(),
        }
    },
)


def _scorer(size: str, **shape: int) -> Settings:
    """A Llama smaller than the shipped one, or as large, pre-trained for some seconds."""
    architecture = {**PRETRAIN["architecture"], **shape}  # type: ignore[dict-item]
    return cite(
        f"smoke: a tiny Llama for the {size}, pre-trained by the pipeline",
        {"scorer.model": {**PRETRAIN, "architecture": architecture, "corpus": NOVEL.model_dump()}},
    )


SCORERS = {
    LLAMA32_1B: _scorer("1B", hidden_size=64, intermediate_size=128, layers=1, heads=1, kv_heads=1),
    LLAMA32_3B: _scorer("3B", hidden_size=64, intermediate_size=128, heads=1, kv_heads=1),
    LLAMA31_8B: _scorer("8B"),
}

EXTENSION: Settings = {
    **cite("smoke: the shipped base's 10,000 x 30.6, the paper's factor", {"extension.rope_theta": 306_000.0}),
    **cite(_EIGHTH, {"extension.long_tokens": 4096}),
}

DATA: Settings = {
    **cite("smoke: the synthetic novel", {"corpus": NOVEL.model_dump()}),
    **cite(_EIGHTH, {"chunking.long_tokens": 4096}),
    **cite("smoke: what the steps read", {"chunking.sequences": STEPS * SEQUENCES_PER_STEP}),
}

LCDE: Settings = cite(_EIGHTH, {"chunking.long_document_tokens": 1024})

# Another novel, most of whose documents are too short for a sequence, as FineWeb's are.
RARE_LONG: Settings = {
    **cite("smoke: another synthetic novel with few long documents", {
        "corpus": NovelCorpus(seed=11, documents=96, document_tokens=5_000).model_dump(),
    }),
    **cite("smoke: what the steps read", {"chunking.sequences": STEPS * SEQUENCES_PER_STEP}),
}  # fmt: skip

TRAINING: Settings = {
    **cite(_SMALL, {"training.steps": STEPS, "training.sequences_per_step": SEQUENCES_PER_STEP}),
    **cite("smoke: a tiny model needs larger steps", {"training.learning_rate": 5e-4}),
    **cite(_SMALL, {"training.warmup_steps": 4}),
    **cite("smoke: CPU", {"training.precision": "fp32"}),
}

WINDOWS: Settings = cite(_EIGHTH, {"scorer.short_tokens": 1024, "scorer.stride_tokens": 768})

EVALUATION: Settings = {
    **cite("smoke: as CPUs compute", {"evaluation.precision": "fp32"}),
    **cite(_EIGHTH, {
        "evaluation.ruler.lengths_tokens": (1024, 2048, 3072, 4096),
        "evaluation.longbench.split_tokens": 1024,
        "evaluation.perplexity.lengths_tokens": (1024, 2048, 3072, 4096),
        "evaluation.pmi.short_tokens": 1024,
        "evaluation.pmi.stride_tokens": 768,
        "evaluation.planted.short_tokens": 1024,
        "evaluation.planted.stride_tokens": 768,
        "evaluation.planted.precision": "fp32",
    }),
    **cite(_SMALL, {
        "evaluation.ruler.samples": 2,
        "evaluation.longbench.samples": None,
        "evaluation.longbench.max_new_tokens": 64,
        "evaluation.mmlu.samples": 2,
        "evaluation.bbh.samples": 1,
        "evaluation.bbh.max_new_tokens": 48,
        "evaluation.perplexity.documents": 8,
        "evaluation.pmi.documents": 8,
        "evaluation.planted.corpus": JUDGE.model_copy(update={"document_tokens": 12_000}).model_dump(),
    }),
    **cite("smoke: shipped files", {
        "evaluation.ruler.haystack": None, "evaluation.ruler.squad": None, "evaluation.ruler.hotpotqa": None,
        "evaluation.longbench.data": None, "evaluation.mmlu.data": None, "evaluation.bbh.data": None,
    }),
    **cite("smoke: the synthetic novel's unseen documents", {"evaluation.perplexity.corpus": NOVEL.model_dump()}),
    **cite("smoke: round a fact from far back in an unseen document", {
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
