"""Further models at the paper's scale: Tables 5, 7 and 11, and the points of Figures 1, 2, 4 and 5.

Each is a row of Table 3 (recipes.paper) with the few settings that its table or figure changes.
"""

from __future__ import annotations

from tokenweight.recipes.cited import Settings, cite
from tokenweight.recipes.corpora import FINEWEB
from tokenweight.recipes.paper import DATA, EXTENSION, ROWS, TRAINING, dense, frozen, sparse, unfrozen

LLAMA32_1B, LLAMA32_3B, LLAMA31_8B = "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.1-8B"

# The paper names no revisions; these are the repositories' own commits, pinned here.
_SCORERS = {
    "1b": (LLAMA32_1B, "4e20de362430cd3b72f300e6b0f18e50e7166e08"),
    "3b": (LLAMA32_3B, "13afe5124825b4f3751f836b40dafda64c1ed062"),
    "8b": (LLAMA31_8B, "d04e592bb4f6aa9cfee91e2e20afa771667e1d4b"),
}


def weak_scorer(size: str) -> Settings:
    """A frozen scorer of the Llama-3.x family in place of the base itself, on windows of 8k (Section 5.2)."""
    repo_id, revision = _SCORERS[size]
    return {
        **cite("Table 5, Scoring; pre-trained on 128k, read with 8k (Section 5.2)", {
            "scorer.model": {"kind": "hub", "repo_id": repo_id, "revision": revision, "context_tokens": 131_072},
        }),
    }  # fmt: skip


_WEAK_TO_STRONG: dict[str, tuple[Settings, ...]] = {
    f"table-5/{kind}-{size}": (*ROWS[f"frozen-{kind}"], weak_scorer(size))
    for kind in ("sparse", "dense")
    for size in _SCORERS
}

PHI2_ID = "microsoft/phi-2"

PHI2: Settings = {
    **cite("Section 4, Generalizability: Phi-2 2.7B, from 2k", {
        "base": {"kind": "hub", "repo_id": PHI2_ID, "revision": "ef382358ec9e382308935a992d908de099b64c23",
                 "context_tokens": 2048},
    }),
    **cite("Section 4, Evaluation: 2k, 4k, 8k, 16k, 32k for Phi-2", {
        "evaluation.ruler.lengths_tokens": (2048, 4096, 8192, 16_384, 32_768),
    }),
    **cite("as the scorer's windows", {
        "evaluation.planted.short_tokens": 2048, "evaluation.planted.stride_tokens": 1920,
        "evaluation.pmi.short_tokens": 2048, "evaluation.pmi.stride_tokens": 1920,
    }),
}  # fmt: skip

PHI2_EXTENSION: Settings = cite("Section 4, Generalizability: base of RoPE from 10k to 500k", {
    "extension.rope_theta": 500_000.0,
})  # fmt: skip

PHI2_WINDOWS: Settings = {
    **cite("Section 4, Generalizability: context of 2k", {"scorer.short_tokens": 2048}),
    **cite('authors\' rule n(1 - n/N); the paper\'s "overlap of 2k" (Section 4, Datasets) fits no window of 2k', {
        "scorer.stride_tokens": 1920,
    }),
}  # fmt: skip


def _phi2(row: str) -> tuple[Settings, ...]:
    """A row of Table 3 with Phi-2: "the same hyperparameters" (Section 4, Generalizability)."""
    parts = ROWS[row]
    extension = (PHI2_EXTENSION,) if EXTENSION in parts else ()
    windows = (PHI2_WINDOWS,) if any("scorer.kind" in part for part in parts) else ()
    return (*parts, PHI2, *extension, *windows)


_PHI2_ROWS: dict[str, tuple[Settings, ...]] = {
    "table-7/no-train-2k": _phi2("no-train-8k"),
    "table-7/no-train-32k": _phi2("no-train-32k"),
    **{
        f"table-7/{row}": _phi2(row)
        for row in ("uniform", "unfrozen-sparse", "unfrozen-dense", "frozen-sparse", "frozen-dense")
    },
}

# A document shorter than a sequence gives none (corpus.chunking): only the rare long ones are left.
RARE_LONG: Settings = {
    **cite("Section 4, Datasets: rare 32k sequences of FineWeb", {"corpus": FINEWEB.model_dump()}),
    **cite("240 steps x 128 (Appendix B)", {"chunking.sequences": 30_720}),
}

_FINEWEB: dict[str, tuple[Settings, ...]] = {
    f"table-11/{row}": (*ROWS[row], RARE_LONG)
    for row in ("uniform", "unfrozen-sparse", "unfrozen-dense", "frozen-sparse", "frozen-dense")
}


def _point(scorer: Settings, weighting: Settings) -> tuple[Settings, ...]:
    return (EXTENSION, DATA, TRAINING, scorer, weighting)


# The points of the figures that are no model of Table 3.
_CURVES: dict[str, tuple[Settings, ...]] = {
    **{
        f"figure-1/lambda-{value:.2f}": _point(unfrozen(), dense(value, f"Figure 1: lambda {value:.2f}"))
        for value in (0.05, 0.25, 0.5)
    },
    **{
        f"figure-2/kappa-{value}": _point(unfrozen(), sparse(value, f"Figure 2: kappa {value}"))
        for value in (0.4, 0.6, 0.8)
    },
    **{
        f"figure-4/lambda-{value:.2f}": _point(frozen(), dense(value, f"Figure 4: lambda {value:.2f}"))
        for value in (0.0, 0.25, 0.5)
    },
    **{
        f"figure-5/kappa-{value}": _point(frozen(), sparse(value, f"Figure 5: kappa {value}"))
        for value in (0.2, 0.6, 0.8)
    },
}

RECIPES: dict[str, tuple[Settings, ...]] = {**_WEAK_TO_STRONG, **_PHI2_ROWS, **_FINEWEB, **_CURVES}
