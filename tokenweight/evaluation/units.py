"""The benchmarks by name, and the stages of their units: `prepare` (prompts that are made beforehand) and `evaluate`.

Loads no model library: a plan lists units with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from tokenweight.errors import UserError, choose, hub_reason
from tokenweight.evaluation.bbh import Bbh
from tokenweight.evaluation.benchmark import Benchmark, HubData
from tokenweight.evaluation.benchmark import Unit as Unit
from tokenweight.evaluation.helmet import Helmet
from tokenweight.evaluation.lm_eval_task import LmEvalTask
from tokenweight.evaluation.longbench import LongBench
from tokenweight.evaluation.longppl import LongPpl
from tokenweight.evaluation.mmlu import Mmlu
from tokenweight.evaluation.nolima import Nolima
from tokenweight.evaluation.perplexity import Perplexity
from tokenweight.evaluation.phrase import Phrase
from tokenweight.evaluation.planted import Planted
from tokenweight.evaluation.pmi import Pmi
from tokenweight.evaluation.ruler.benchmark import Ruler
from tokenweight.evaluation.samples import write_prompts
from tokenweight.pipeline import experiment
from tokenweight.pipeline.stage import Artifact, Inputs, Stage
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Evaluation, Execution

ANSWER_SECONDS = 20.0  # of the hub
BENCHMARKS: dict[str, Benchmark] = experiment.BENCHMARKS
for _one in (
    Ruler(), LongBench(), Mmlu(), Bbh(), Perplexity(), LongPpl(), Pmi(), Phrase(), Planted(), Helmet(), Nolima(), LmEvalTask(),
):  # fmt: skip
    BENCHMARKS[_one.name] = _one


def benchmark_of(unit: Unit) -> Benchmark:
    return BENCHMARKS[unit.benchmark]


def in_order(names: Iterable[str]) -> list[str]:
    """Names of benchmarks as they run; of a family by name. UserError: one is unknown."""
    order, given = list(BENCHMARKS), [(name.partition(":"), name) for name in sorted(names)]
    for (family, _, task), name in given:
        if family not in order or BENCHMARKS[family].is_family is not bool(task):
            raise UserError(f"benchmarks: {name!r} is unknown{choose(name, offered('sweep'))}")
    return [name for _, name in sorted(given, key=lambda one: order.index(one[0][0]))]


def offered(where: str, text: str = "") -> list[str]:
    """Benchmarks that a command offers, of a family those that a comma-separated text names, or FAMILY:TASK."""
    found = list[str]()
    for name, benchmark in BENCHMARKS.items():
        given = [one for one in dict.fromkeys(map(str.strip, text.split(","))) if one.startswith(f"{name}:")]
        found += (given or [f"{name}:TASK"] if benchmark.is_family else [name]) if where in benchmark.offered else []
    return found


def unreachable(benchmarks: Iterable[str], evaluation: Evaluation) -> list[str]:
    """One line for each data set of the hub that cannot be read, with the way out.

    Online the hub is asked for the pinned revision; with HF_HUB_OFFLINE set, the local cache must hold the data.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_OFFLINE

    seen, found = set[HubData](), []
    for name in in_order(benchmarks):
        data = BENCHMARKS[name].hub(evaluation)
        if data is None or data in seen:
            continue
        seen.add(data)
        try:
            if HF_HUB_OFFLINE:
                from datasets import load_dataset_builder

                load_dataset_builder(data.repo_id, data.subset, revision=data.revision)
            else:
                HfApi().dataset_info(data.repo_id, revision=data.revision, timeout=ANSWER_SECONDS)
        except Exception as error:  # datasets and the hub client raise many kinds; all mean that it cannot be read
            found.append(
                f"{name}: the hub's {data.repo_id} cannot be read ({hub_reason(error)}); go online, set HF_HUB_OFFLINE=1 "
                f"where `datasets` has it in its cache, or give a directory with {data.option}"
            )
    return found


class UnitStage(Stage):
    """What both know: the unit, and only those settings that it depends on, with digests in place of paths."""

    unit: Unit
    evaluation: Evaluation
    context_tokens: int | None


class Prepare(UnitStage):
    """Prompts of a RULER or LongBench unit for one tokenizer. Input: tokenizer."""

    name = "prepare"
    template: dict[str, Any]  # versions and hub revision that the prompts depend on

    @classmethod
    def of(cls, unit: Unit, evaluation: Evaluation, context_tokens: int) -> Self:
        """A unit's prompts, which know neither backend nor precision nor the metric."""
        benchmark = benchmark_of(unit)
        own = benchmark.settings_of(unit, evaluation)
        part = own[unit.benchmark]
        unscored = {name: type(part).model_fields[name].default for name in benchmark.scoring_fields}
        own[unit.benchmark] = part.model_copy(update=unscored)
        template: dict[str, Any] = {"template_version": benchmark.protocol(unit, evaluation)["template_version"]}
        if hub := benchmark.hub(evaluation):
            template["hub"] = hub.identity
        return cls(
            unit=unit,
            evaluation=Evaluation.model_construct(precision="fp32", **own),
            context_tokens=None if unit.length_tokens else context_tokens,  # to which prompts of no length are cut
            template=template,
        )

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        name = self.unit.id.replace("/", "-")
        return name if self.context_tokens is None else f"{name}-{self.context_tokens}"

    def run(self, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
        benchmark, context_tokens = benchmark_of(self.unit), self.context_tokens or 0
        made, fill = benchmark.prepare(self.unit, self.evaluation, inputs["tokenizer"], context_tokens)
        return write_prompts(made, out_dir, **fill)


class Evaluate(UnitStage):
    """Samples of one unit. Inputs: checkpoint; prepared, or chunks and scores (planted), or scorer (PMI, phrase)."""

    name = "evaluate"
    context_tokens: int
    protocol: dict[str, Any]  # versions of harness and prompts, shots, generation
    scoring: dict[str, Any]  # metric and its versions: with others the same outputs are scored again

    @classmethod
    def of(cls, unit: Unit, evaluation: Evaluation, context_tokens: int, endpoint: str | None = None) -> Self:
        """A unit of a model that reads `context_tokens`, or that a server has. UserError: the benchmark needs the backend hf."""
        benchmark, backend = benchmark_of(unit), evaluation.backend
        if backend != "hf" and benchmark.one_pass:
            raise UserError(
                f"backend {backend}: {unit.benchmark} reads every token's NLL, which only the backend hf gives; "
                "leave it out, or use hf"
            )
        if backend == "endpoint" and not benchmark.generates(unit.task, evaluation):
            raise UserError(
                f"backend endpoint: {unit.benchmark} asks for log-likelihoods, and a server gives only text; "
                "leave it out, or use hf"
            )
        server = {"server": endpoint} if endpoint else {}  # another's answers are others
        own = benchmark.settings_of(unit, evaluation)
        if benchmark.prompted:  # its texts are in the prompts
            own[unit.benchmark] = own[unit.benchmark].model_copy(update=dict.fromkeys(benchmark.path_fields))
        return cls(
            unit=unit,
            evaluation=Evaluation.model_construct(backend=backend, precision=evaluation.precision, **own),
            context_tokens=context_tokens,
            protocol=benchmark.protocol(unit, evaluation) | server,
            scoring=benchmark.scoring(unit, evaluation),
        )

    def label(self, inputs: Mapping[str, Artifact]) -> str:
        backend = self.evaluation.backend
        name = f"{inputs['checkpoint'].short_name}--{re.sub(r'[^A-Za-z0-9._+-]', '-', self.unit.id)}"
        return name if backend == "hf" else f"{name}-{backend}"
