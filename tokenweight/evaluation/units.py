"""The benchmarks by name, and what a plan asks of them. Loads no model library: a dry run lists units with it."""

from __future__ import annotations

from tokenweight.errors import UserError
from tokenweight.evaluation.bbh import Bbh
from tokenweight.evaluation.benchmark import AskedBenchmark, Benchmark, PassBenchmark, Unit
from tokenweight.evaluation.longbench.benchmark import LongBench
from tokenweight.evaluation.mmlu import Mmlu
from tokenweight.evaluation.perplexity import Perplexity
from tokenweight.evaluation.phrase import Phrase
from tokenweight.evaluation.planted import Planted
from tokenweight.evaluation.pmi import Pmi
from tokenweight.evaluation.ruler.benchmark import Ruler
from tokenweight.recipes.schema import Evaluation

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


__all__ = ["BENCHMARKS", "Benchmark", "Unit", "benchmark_named", "benchmark_of", "units"]
