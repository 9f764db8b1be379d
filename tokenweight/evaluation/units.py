"""The benchmarks by name, and what a plan asks of them. Loads no model library: a dry run lists units with it."""

from __future__ import annotations

from collections.abc import Collection

from tokenweight.evaluation.bbh import Bbh
from tokenweight.evaluation.benchmark import Benchmark, HubData
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
BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (Ruler(), LongBench(), Mmlu(), Bbh(), Perplexity(), Pmi(), Phrase(), Planted())
}


def benchmark_of(unit: Unit) -> Benchmark:
    return BENCHMARKS[unit.benchmark]


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
