"""Any models under the paper's evaluation: a row each, the columns of Tables 3, 8, 9 and 10 (no table of the paper)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tokenweight.reports.benchmarks import LONGBENCH_CATEGORIES
from tokenweight.reports.figures.pmi import draw
from tokenweight.reports.manifest import Manifest
from tokenweight.reports.measures import Perplexity, SampleMean, TaskMean
from tokenweight.reports.targets import columns as shared
from tokenweight.reports.targets.main_results import BBH_SHOTS, CATEGORY_LABELS, LONGBENCH_UNIT
from tokenweight.reports.targets.model import Column, Row, Target
from tokenweight.reports.targets.pmi import PMI_COLUMNS, PMI_NOTES

OTHER_SAMPLES = (
    "RULER's samples are made to fill each length with the model's own tokenizer: models of different tokenizers answer "
    "different samples of the same kind."
)


def _bbh(_: Manifest) -> tuple[Column, ...]:
    return (
        Column("bbh", "strict", SampleMean("bbh"), None, "BBH"),
        Column("bbh-tolerant", "tolerant", SampleMean("bbh", tolerant=True), None, "BBH"),
    )


def _longbench(manifest: Manifest) -> tuple[Column, ...]:
    categories = (
        Column(f"longbench-{key}", CATEGORY_LABELS[key], TaskMean("longbench", tasks=tasks), None, "LongBench")
        for key, tasks in LONGBENCH_CATEGORIES.items()
    )
    return (shared.longbench("full", "LongBench"), *shared.longbench_sides(manifest), *categories)


def _ruler(manifest: Manifest) -> tuple[Column, ...]:
    return (shared.ruler_combined(manifest, "combined", "RULER"), *shared.ruler_lengths(manifest))


def _perplexity(manifest: Manifest) -> tuple[Column, ...]:
    labelled = ((tokens, shared.tokens_label(tokens)) for tokens in manifest.perplexity_lengths_tokens)
    return tuple(Column(f"perplexity-{label}", label, Perplexity(n), None, "Perplexity") for n, label in labelled)


COLUMNS: dict[str, Callable[[Manifest], tuple[Column, ...]]] = {
    "mmlu": lambda _: (shared.mmlu(),),
    "bbh": _bbh,
    "longbench": _longbench,
    "ruler": _ruler,
    "perplexity": _perplexity,
    "pmi": lambda _: PMI_COLUMNS,
}
NOTES = {"bbh": (BBH_SHOTS,), "longbench": (LONGBENCH_UNIT,), "ruler": (OTHER_SAMPLES,), "pmi": PMI_NOTES}


def any_model_target(name: str, models: dict[str, str], benchmarks: tuple[str, ...], about: str) -> Target:
    """The target called `name`: `models` gives each row's label and recipe; columns of `benchmarks` alone."""
    chosen = tuple(benchmark for benchmark in COLUMNS if benchmark in benchmarks)

    def columns(manifest: Manifest) -> tuple[Column, ...]:
        made = (column for benchmark in chosen for column in COLUMNS[benchmark](manifest))
        return tuple(replace(column, paper=None) for column in made)

    return Target(
        name=name,
        title=f"Under the paper's evaluation: {', '.join(models)}",
        paper_place="",
        rows=tuple(Row(label, label, recipe) for label, recipe in models.items()),
        columns=columns,
        baseline=next(iter(models)) if len(models) > 1 else None,
        divergences=tuple(note for benchmark in chosen for note in NOTES.get(benchmark, ())),
        command="tokenweight evaluate",
        about=about,
        figure=draw if "pmi" in chosen else None,
        same_questions=False,
    )
