"""Units of evaluation: one (benchmark, task, length) each, resumable on its own.

Light on purpose: the dry run lists units without loading any model library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tokenweight.errors import UserError
from tokenweight.evaluation.longbench import tasks as longbench
from tokenweight.evaluation.ruler import tasks as ruler
from tokenweight.recipes.schema import Evaluation

Benchmark = Literal["ruler", "longbench", "mmlu", "bbh", "perplexity", "pmi", "phrase", "planted"]
BENCHMARKS: tuple[Benchmark, ...] = get_args(Benchmark)
ONE_PASS = ("perplexity", "pmi", "phrase", "planted")  # whose units all come from the same pass over the texts

RULER_TASKS = tuple(ruler.TASKS)
LONGBENCH_TASKS = tuple(longbench.TASKS)

MMLU_SUBJECTS = (
    "abstract_algebra", "anatomy", "astronomy", "business_ethics", "clinical_knowledge", "college_biology",
    "college_chemistry", "college_computer_science", "college_mathematics", "college_medicine", "college_physics",
    "computer_security", "conceptual_physics", "econometrics", "electrical_engineering", "elementary_mathematics",
    "formal_logic", "global_facts", "high_school_biology", "high_school_chemistry", "high_school_computer_science",
    "high_school_european_history", "high_school_geography", "high_school_government_and_politics",
    "high_school_macroeconomics", "high_school_mathematics", "high_school_microeconomics", "high_school_physics",
    "high_school_psychology", "high_school_statistics", "high_school_us_history", "high_school_world_history",
    "human_aging", "human_sexuality", "international_law", "jurisprudence", "logical_fallacies", "machine_learning",
    "management", "marketing", "medical_genetics", "miscellaneous", "moral_disputes", "moral_scenarios", "nutrition",
    "philosophy", "prehistory", "professional_accounting", "professional_law", "professional_medicine",
    "professional_psychology", "public_relations", "security_studies", "sociology", "us_foreign_policy", "virology",
    "world_religions",
)  # fmt: skip

BBH_TASKS = (
    "boolean_expressions", "causal_judgement", "date_understanding", "disambiguation_qa", "dyck_languages",
    "formal_fallacies", "geometric_shapes", "hyperbaton", "logical_deduction_five_objects",
    "logical_deduction_seven_objects", "logical_deduction_three_objects", "movie_recommendation",
    "multistep_arithmetic_two", "navigate", "object_counting", "penguins_in_a_table",
    "reasoning_about_colored_objects", "ruin_names", "salient_translation_error_detection", "snarks",
    "sports_understanding", "temporal_sequences", "tracking_shuffled_objects_five_objects",
    "tracking_shuffled_objects_seven_objects", "tracking_shuffled_objects_three_objects", "web_of_lies",
    "word_sorting",
)  # fmt: skip


PHRASE_TASKS = ("long_nll", "short_nll", "difference")  # of each token of the phrase; difference: |long - short|

PLANTED_KINDS = ("long_recall", "short_recall", "name", "introduction", "hard", "easy")  # of corpus.documents.Kind
PLANTED_RECALL = "recall"  # by distance: `length_tokens` is the farthest

PLANTED_TASKS = (
    *(f"abs_pmi-{kind}" for kind in PLANTED_KINDS), "auc", PLANTED_RECALL,
    *(f"nll-{kind}" for kind in PLANTED_KINDS), "nll", "nll-short_context",
)  # fmt: skip


@dataclass(frozen=True, order=True)
class Unit:
    """One column's smallest piece: a benchmark's task, at a length where the benchmark has lengths."""

    benchmark: Benchmark
    task: str
    length_tokens: int | None = None

    @property
    def id(self) -> str:
        """Readable identity, e.g. `ruler/niah_single_1/4096` or `mmlu/anatomy`."""
        parts: tuple[object, ...] = (self.benchmark, self.task)
        return "/".join(str(part) for part in (*parts, self.length_tokens) if part is not None)


def units(benchmark: str, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
    """All units of a benchmark for a model that reads `context_tokens`; lengths beyond that are left out.

    Raises:
        UserError: the benchmark is unknown.
    """
    match benchmark:
        case "ruler":
            return [Unit("ruler", task, n) for n in _within(evaluation.ruler.lengths_tokens, context_tokens)
                    for task in RULER_TASKS]  # fmt: skip
        case "longbench":
            return [Unit("longbench", task) for task in LONGBENCH_TASKS]
        case "mmlu":
            return [Unit("mmlu", subject) for subject in MMLU_SUBJECTS]
        case "bbh":
            return [Unit("bbh", task) for task in BBH_TASKS]
        case "perplexity":
            lengths = _within(evaluation.perplexity.lengths_tokens, context_tokens)
            return [Unit("perplexity", "validation", n) for n in lengths]
        case "pmi":  # a model that reads no more than a window has no far context
            return [Unit("pmi", "validation")] if context_tokens > evaluation.pmi.short_tokens else []
        case "phrase":
            return (
                [Unit("phrase", task) for task in PHRASE_TASKS] if context_tokens > evaluation.pmi.short_tokens else []
            )
        case "planted":
            distances = planted_distances(evaluation.planted.short_tokens, context_tokens)
            plain = [Unit("planted", task) for task in PLANTED_TASKS if task != PLANTED_RECALL]
            return [*plain, *(Unit("planted", PLANTED_RECALL, distance) for distance in distances)]
    raise UserError(f"benchmark {benchmark!r}: unknown; choose from {', '.join(BENCHMARKS)}")


def planted_distances(short_tokens: int, context_tokens: int) -> tuple[int, ...]:
    """The farthest distance of each bin of recall by distance: multiples of the short context, up to the long one."""
    return (*range(short_tokens, context_tokens, short_tokens), context_tokens)


def _within(lengths_tokens: tuple[int, ...], context_tokens: int) -> list[int]:
    return [n for n in lengths_tokens if n <= context_tokens]
