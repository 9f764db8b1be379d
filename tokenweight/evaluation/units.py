"""The benchmarks by name, and what a plan asks of them. Loads no model library: a dry run lists units with it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.bbh import Bbh
from tokenweight.evaluation.benchmark import AskedBenchmark, HubData, PassBenchmark
from tokenweight.evaluation.benchmark import Unit as Unit
from tokenweight.evaluation.longbench.benchmark import LongBench
from tokenweight.evaluation.mmlu import Mmlu
from tokenweight.evaluation.perplexity import Perplexity
from tokenweight.evaluation.phrase import Phrase
from tokenweight.evaluation.planted import Planted
from tokenweight.evaluation.pmi import Pmi
from tokenweight.evaluation.ruler.benchmark import Ruler
from tokenweight.recipes.schema import Evaluation

ANSWER_SECONDS = 20.0  # of the hub
BENCHMARKS: dict[str, AskedBenchmark | PassBenchmark] = {
    benchmark.name: benchmark
    for benchmark in (Ruler(), LongBench(), Mmlu(), Bbh(), Perplexity(), Pmi(), Phrase(), Planted())
}


def benchmark_named(name: str) -> AskedBenchmark | PassBenchmark:
    """The benchmark of that name. UserError: there is none."""
    if name not in BENCHMARKS:
        raise UserError(f"benchmark {name!r}: unknown; choose from {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


def benchmark_of(unit: Unit) -> AskedBenchmark | PassBenchmark:
    """The benchmark that a unit is part of."""
    return benchmark_named(unit.benchmark)


def units(benchmark: str, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
    """All units of a benchmark for a model that reads `context_tokens`. UserError: no such benchmark."""
    return benchmark_named(benchmark).units(evaluation, context_tokens)


def settings_of(unit: Unit, evaluation: Evaluation) -> Evaluation:
    """The settings that a unit's samples and scores depend on and no others: reading another one is an AttributeError."""
    benchmark = benchmark_of(unit)
    own = benchmark.settings_of(unit, evaluation)
    if benchmark.prompted:  # its texts are in the prompts
        own[unit.benchmark] = own[unit.benchmark].model_copy(update=dict.fromkeys(benchmark.path_fields))
    return Evaluation.model_construct(backend=evaluation.backend, precision=evaluation.precision, **own)


def prompt_settings_of(unit: Unit, evaluation: Evaluation) -> Evaluation:
    """As :func:`settings_of`, of the prompts alone, which know neither backend nor precision nor the metric."""
    benchmark = benchmark_of(unit)
    own = benchmark.settings_of(unit, evaluation)
    part = own[unit.benchmark]
    unscored = {name: type(part).model_fields[name].default for name in benchmark.scoring_fields}
    return Evaluation.model_construct(precision="fp32", **own | {unit.benchmark: part.model_copy(update=unscored)})


def template_of(unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
    """What prepared prompts depend on beside tokenizer, settings and local files."""
    benchmark = benchmark_of(unit)
    hub = benchmark.hub(evaluation)
    template = {"template_version": benchmark.task_template_version(unit.task)}
    return template | ({"hub": hub.identity} if hub else {})


def protocol(unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
    """How a unit's model is asked, beside its settings. UserError: the benchmark needs the backend hf."""
    benchmark = benchmark_of(unit)
    if evaluation.backend != "hf" and benchmark.one_pass:
        raise UserError(
            f"backend {evaluation.backend}: {unit.benchmark} reads every token's NLL, which the backend hf alone gives; "
            "leave it out, or use hf"
        )
    return benchmark.protocol(unit, evaluation)


def unreachable(benchmarks: Collection[str], evaluation: Evaluation) -> list[str]:
    """One line for each data set of the hub that cannot be read, with the way out.

    Online the hub is asked for the pinned revision; with HF_HUB_OFFLINE set, the local cache must hold the data.
    """
    needed: dict[HubData, str] = {}
    for name, benchmark in BENCHMARKS.items():
        if name in benchmarks and (data := benchmark.hub(evaluation)):
            needed.setdefault(data, name)
    return [
        f"{name}: the hub's {data.repo_id} cannot be read ({error}); go online, set HF_HUB_OFFLINE=1 where "
        f"`datasets` has it in its cache, or give a directory with {data.option}"
        for data, name in needed.items()
        if (error := _error(data)) is not None
    ]


def _error(data: HubData) -> str | None:
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_OFFLINE

    try:
        if HF_HUB_OFFLINE:
            from datasets import load_dataset_builder

            load_dataset_builder(data.repo_id, data.subset, revision=data.revision)
        else:
            HfApi().dataset_info(data.repo_id, revision=data.revision, timeout=ANSWER_SECONDS)
    except Exception as error:  # datasets and the hub client raise many kinds; all mean that it cannot be read
        return type(error).__name__
    return None
