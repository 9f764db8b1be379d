"""Scale `paper`: Llama-3 8B from 8k to 32k, each constant with its place in the paper.

The rows of Table 3 differ only in what `ROWS` says of them, those of Table 4 in the score.
"""

from __future__ import annotations

from tokenweight.recipes.cited import Settings, cite, replace
from tokenweight.recipes.corpora import JUDGE, PG19, SLIMPAJAMA

LLAMA3_8B: Settings = {
    **cite(
        "Section 4, Models: Llama-3 8B, trained with 8192 tokens",
        {
            "base.kind": "hub",
            "base.repo_id": "meta-llama/Meta-Llama-3-8B",
            "base.context_tokens": 8192,
        },
    ),
    **cite("pinned here; the paper names no revision", {"base.revision": "8cde5ca8380496c9a6cc7ef3a8b46a0372a1d920"}),
}

EXTENSION: Settings = {
    **cite("Section 4, Models: base of RoPE from 500k to 15.3M", {"extension.rope_theta": 15_300_000.0}),
    **cite("Section 4, Models: increase the base (ABF)", {"extension.method": "abf"}),
    **cite("Section 4, Models: 32768 tokens", {"extension.long_tokens": 32_768}),
}

DATA: Settings = {
    **cite("Section 4, Datasets: PG-19", {"corpus": PG19.model_dump()}),
    **cite("Section 4, Datasets: chunks of 32k, last one dropped", {"chunking.long_tokens": 32_768}),
}

TRAINING: Settings = {
    **cite("Appendix B: 240 steps", {"training.steps": 240}),
    **cite("Appendix B: 8 x 16 accumulation = 128 (4M tokens)", {"training.sequences_per_step": 128}),
    **cite("Appendix B: 2e-5", {"training.learning_rate": 2e-5}),
    **cite("Appendix B: 20 linear warm-up steps", {"training.warmup_steps": 20}),
    **cite("Appendix B: AdamW", {"training.beta1": 0.9, "training.beta2": 0.95, "training.epsilon": 1e-8}),
    **cite("Appendix B: weight decay 0.01", {"training.weight_decay": 0.01}),
    **cite("authors' configuration; the paper does not say", {"training.gradient_clip": 1.0}),
    **cite("authors' configuration; the paper does not say", {"training.precision": "bf16"}),
}

EVALUATION: Settings = {
    **cite("the paper does not say; as in training", {"evaluation.precision": "bf16"}),
    **cite("Section 4, Evaluation: 8k, 16k, 24k, 32k", {"evaluation.ruler.lengths_tokens": (8192, 16_384, 24_576, 32_768)}),
    **cite("Appendix C: 500 examples a task", {"evaluation.ruler.samples": 500}),
    **cite("official RULER's default seed", {"evaluation.ruler.seed": 42}),
    **cite("no shipped default at this scale: give your files", {
        "evaluation.ruler.haystack": "data/ruler/PaulGrahamEssays.json",
        "evaluation.ruler.squad": "data/ruler/squad.json",
        "evaluation.ruler.hotpotqa": "data/ruler/hotpotqa.json",
    }),
    **cite("Section 4, Evaluation: English LongBench, 16 tasks", {"evaluation.longbench.data": "hub"}),
    **cite("Section 4, Evaluation: <=8k and >8k", {"evaluation.longbench.split_tokens": 8192}),
    **cite("the paper does not say; tokens of the model", {"evaluation.longbench.length_unit": "tokens"}),
    **cite("LCEG's rule, which the paper follows (footnote 8)", {"evaluation.longbench.first_line": "lceg"}),
    **cite("Section 4, Evaluation: 5-shot MMLU by lm-evaluation-harness", {
        "evaluation.mmlu.data": "hub", "evaluation.mmlu.fewshot": 5,
    }),
    **cite("lm-eval's bbh_cot_fewshot has 3 exemplars; the paper says 5 (Table 10)", {
        "evaluation.bbh.data": "hub", "evaluation.bbh.fewshot": 3, "evaluation.bbh.max_new_tokens": 1024,
    }),
    **cite("Table 9", {"evaluation.perplexity.lengths_tokens": (8192, 16_384, 24_576, 32_768)}),
    **cite("Table 9: validation set of PG-19", {"evaluation.perplexity.corpus": PG19.model_dump()}),
    **cite("Figure 3: all tokens of PG-19's validation set", {"evaluation.pmi.documents": None}),
    **cite("Figure 3: measured with the one model", {"evaluation.pmi.scorer": "unfrozen"}),
    **cite("Section 5.3: k = 2", {"evaluation.pmi.shift_k": 2.0}),
    **cite("as the scorer's windows", {
        "evaluation.pmi.short_tokens": 8192, "evaluation.pmi.stride_tokens": 6144,
    }),
    **cite("Table 1; the text is a novel under copyright: give your own file", {
        "evaluation.phrase.file": "data/table-1.txt",
    }),
    **cite("Table 1: the words that it prints", {
        "evaluation.phrase.words": "inspired by the prints in one of Melquíades’ books",
    }),
    **cite("Table 1 has a model of 8k beside one of 32k, unnamed: here the base and the uniform model", {
        "evaluation.phrase.scorer": "frozen",
    }),
    **cite("not in the paper: the synthetic novel as a judge", {
        "evaluation.planted.corpus": JUDGE.model_dump(), "evaluation.planted.sequences": 16,
    }),
    **cite("as the scorer's windows", {
        "evaluation.planted.short_tokens": 8192, "evaluation.planted.stride_tokens": 6144,
    }),
}  # fmt: skip

WINDOWS: Settings = {
    **cite("Section 4, Datasets: loss with a context of 8k", {"scorer.short_tokens": 8192}),
    **cite("Section 4, Datasets: overlap of 2k, so 8192 - 2048", {"scorer.stride_tokens": 6144}),
}

SCORE: Settings = cite("Eq. 6: absolute log ratio", {"weighting.score": "abs_pmi"})


def frozen() -> Settings:
    """Scores by the base model itself, before extension, computed once (Section 4, Weighting variants)."""
    return replace(WINDOWS, SCORE, cite("Section 4, Weighting variants: frozen", {"scorer.kind": "frozen"}))


def unfrozen() -> Settings:
    """Scores by the model in training, on short windows (Section 4, Weighting variants)."""
    return replace(WINDOWS, SCORE, cite("Section 4, Weighting variants: unfrozen", {"scorer.kind": "unfrozen"}))


def dense(interpolation_lambda: float, place: str) -> Settings:
    """Normalised scores interpolated with uniform weights (Eq. 7 and 8)."""
    return cite(place, {"weighting.postprocessing": "dense", "weighting.lambda": interpolation_lambda})


def sparse(kappa: float, place: str) -> Settings:
    """The kappa share of tokens with the highest scores (Section 3.2)."""
    return cite(place, {"weighting.postprocessing": "sparse", "weighting.kappa": kappa})


UNIFORM: Settings = cite("Section 4, Weighting variants: Uniform", {"weighting.postprocessing": "uniform"})

LCDE: Settings = {
    **cite("Section 4, Datasets: LCDE on SlimPajama", {"corpus": SLIMPAJAMA.model_dump(), "chunking.mixture": "lcde"}),
    **cite("Section 4, Datasets: sequences longer than 8k upsampled", {"chunking.long_document_tokens": 8192}),
    **cite("Fu et al. 2024: long documents drawn 5 times as often", {"chunking.long_document_factor": 5}),
    **cite("240 steps x 128 (Appendix B)", {"chunking.sequences": 30_720}),
}

_MAIN = "Section 4, Weighting variants: "

# What each row of Table 3 is made of, beside base and evaluation.
ROWS: dict[str, tuple[Settings, ...]] = {
    "no-train-8k": (),
    "no-train-32k": (EXTENSION,),
    "lcde": (EXTENSION, DATA, TRAINING, UNIFORM, LCDE),
    "uniform": (EXTENSION, DATA, TRAINING, UNIFORM),
    "unfrozen-sparse": (EXTENSION, DATA, TRAINING, unfrozen(), sparse(0.2, _MAIN + "kappa 0.2 for unfrozen")),
    "unfrozen-dense": (EXTENSION, DATA, TRAINING, unfrozen(), dense(0.75, _MAIN + "lambda 0.75")),
    "frozen-sparse": (EXTENSION, DATA, TRAINING, frozen(), sparse(0.4, _MAIN + "kappa 0.4 for frozen")),
    "frozen-dense": (EXTENSION, DATA, TRAINING, frozen(), dense(0.75, _MAIN + "lambda 0.75")),
}


def variant(score: str) -> tuple[Settings, ...]:
    """Frozen sparse with another score (Section 5.3: "our best-performing model, sparse frozen with kappa = 0.4")."""
    settings = cite("Section 5.3, Influence of scoring function", {"weighting.score": score})
    if score in ("sppmi", "snpmi"):
        settings |= cite("Section 5.3: k = 2", {"weighting.shift_k": 2.0})
    return (*ROWS["frozen-sparse"], settings)


# Recipes by name: the table that first shows them, and the row there; recipes.ablations has the others.
RECIPES: dict[str, tuple[Settings, ...]] = {
    **{f"table-3/{row}": parts for row, parts in ROWS.items()},
    **{f"table-4/{score}": variant(score) for score in ("ppmi", "npmi", "sppmi", "snpmi")},
}


def settings_of(parts: tuple[Settings, ...]) -> Settings:
    """Settings at the paper's scale of a recipe that is made of `parts`, beside base and evaluation."""
    return replace(LLAMA3_8B, EVALUATION, *parts)
