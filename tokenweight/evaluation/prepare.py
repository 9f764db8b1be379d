"""What a unit needs before a model is loaded: its prompts, its raw files, and the identity of its protocol."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation import bbh, mmlu
from tokenweight.evaluation.units import Unit
from tokenweight.evaluation.vllm_check import OWN_HEAD
from tokenweight.recipes.schema import Evaluation

version = cache(metadata.version)  # milliseconds each, and a plan asks thousands of times
# Raised whenever a benchmark's prompts, or the meaning of its scores, change: older rows are then not reused.
TEMPLATE_VERSION = {
    "ruler": 1,
    "longbench": 1,
    "mmlu": 1,
    "bbh": 1,
    "perplexity": 1,
    "pmi": 1,
    "phrase": 1,
    "planted": 1,
}
_TASK_TEMPLATE_VERSION = {("ruler", "fwe"): 2}  # 2: fuller samples
METRIC_VERSION = {"ruler": 1, "longbench": 1, "mmlu": 1, "bbh": 1, "perplexity": 1, "pmi": 1, "phrase": 1, "planted": 1}
_METRIC_PACKAGES = {"longbench": ("rouge",)}


def prepare(
    unit: Unit, evaluation: Evaluation, tokenizer_dir: Path, context_tokens: int, out_dir: Path
) -> dict[str, Any]:
    """Write the prompts of a RULER or LongBench unit for one tokenizer; returns the summary.

    Raises:
        UserError: a source is missing, or the length cannot hold the task.
        ValueError: the benchmark's prompts are made by lm-eval while it runs (MMLU, BBH) or there are none.
    """
    if unit.benchmark == "ruler" and unit.length_tokens is not None:
        from tokenweight.evaluation.ruler.prepare import prepare_ruler

        return prepare_ruler(unit.task, unit.length_tokens, evaluation.ruler, tokenizer_dir, out_dir)
    if unit.benchmark == "longbench":
        from tokenweight.evaluation.longbench.prepare import prepare_longbench

        return prepare_longbench(unit.task, evaluation.longbench, tokenizer_dir, context_tokens, out_dir)
    raise ValueError(f"{unit.id}: nothing to prepare")


def data_files(unit: Unit, evaluation: Evaluation) -> list[Path]:
    """Raw local files whose content is part of the unit's identity, shipped ones included; [] for hub data.

    Raises:
        UserError: a file is missing (named, with what to do).
    """
    match unit.benchmark:
        case "ruler":
            from tokenweight.evaluation.ruler.sources import Sources
            from tokenweight.evaluation.ruler.tasks import ruler_task

            return Sources.of(evaluation.ruler).files(ruler_task(unit.task))
        case "longbench":
            from tokenweight.evaluation.longbench.data import longbench_files

            return longbench_files(unit.task, evaluation.longbench)
        case "mmlu":
            return mmlu.subject_files(evaluation.mmlu, unit.task)
        case "bbh":
            return bbh.task_file(evaluation.bbh, unit.task)
        case "perplexity" | "pmi":
            from tokenweight.corpus.sources import corpus_files

            return corpus_files(evaluation.perplexity.corpus)
        case "phrase" if evaluation.phrase.file:
            return [Path(evaluation.phrase.file)]
        case "phrase":
            from tokenweight.corpus.sources import corpus_files

            return corpus_files(evaluation.perplexity.corpus)
        case "planted":
            return []


def prompt_identity(unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
    """What prepared prompts depend on beside tokenizer, settings and local files; {} for first versions on such files."""
    version = template_version(unit)
    identity: dict[str, Any] = {"template_version": version} if version > 1 else {}
    hub = protocol(unit, evaluation).get("hub")
    return identity | ({"hub": hub} if hub else {})


def template_version(unit: Unit) -> int:
    """Version of a unit's prompts: its task's own where only that changed, else its benchmark's."""
    return _TASK_TEMPLATE_VERSION.get((unit.benchmark, unit.task), TEMPLATE_VERSION[unit.benchmark])


def protocol(unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
    """Everything beside data, tokenizer and checkpoint that a unit's scores depend on (no paths).

    Raises:
        UserError: the benchmark needs the backend hf.
    """
    precision = {} if evaluation.precision == "fp32" else {"model_precision": evaluation.precision}
    return _of_benchmark(unit, evaluation) | precision


def _of_benchmark(unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
    if evaluation.backend != "hf" and unit.benchmark in OWN_HEAD:
        raise UserError(
            f"backend {evaluation.backend}: {unit.benchmark} reads every token's NLL, which the backend hf alone gives; "
            "leave it out, or use hf"
        )
    identity: dict[str, Any] = {
        "harness": f"lm-eval {version('lm-eval')}",
        "template_version": template_version(unit),
        "metric_version": METRIC_VERSION[unit.benchmark],
        "metric_packages": {name: version(name) for name in _METRIC_PACKAGES.get(unit.benchmark, ())},
        "chat_template": False,
        **({} if evaluation.backend == "hf" else {"backend": evaluation.backend}),
    }
    greedy = {"do_sample": False}
    match unit.benchmark:
        case "ruler":
            from tokenweight.evaluation.ruler.tasks import ruler_task

            task = ruler_task(unit.task)
            return identity | {
                "metric": task.metric, "fewshot": int(unit.task in ("vt", "cwe")),
                "generation": greedy | {"max_new_tokens": task.tokens_to_generate},
                "samples": evaluation.ruler.samples, "seed": evaluation.ruler.seed,
                **({} if evaluation.ruler.profile == "paper" else {"profile": evaluation.ruler.profile}),
            }  # fmt: skip
        case "longbench":
            from tokenweight.evaluation.longbench.data import HUB_REPO, HUB_REVISION
            from tokenweight.evaluation.longbench.tasks import longbench_task

            longbench = longbench_task(unit.task)
            hub = {"repo_id": HUB_REPO, "revision": HUB_REVISION}
            return identity | {
                "metric": longbench.metric, "fewshot": 0,
                "generation": greedy | {"max_new_tokens": longbench.max_new_tokens},
                "first_line": evaluation.longbench.first_line, "samples": evaluation.longbench.samples,
                "hub": hub if evaluation.longbench.data == "hub" else None,
            }  # fmt: skip
        case "mmlu":
            return identity | {
                "metric": mmlu.METRIC, "fewshot": evaluation.mmlu.fewshot, "fewshot_order": "first_n of dev",
                "samples": evaluation.mmlu.samples, "hub": mmlu.HUB if evaluation.mmlu.data == "hub" else None,
            }  # fmt: skip
        case "bbh":
            return identity | {
                "metric": bbh.METRIC, "fewshot": evaluation.bbh.fewshot, "fewshot_order": "first_n of lm-eval's",
                "generation": greedy | {"max_new_tokens": evaluation.bbh.max_new_tokens},
                "samples": evaluation.bbh.samples, "hub": bbh.HUB if evaluation.bbh.data == "hub" else None,
            }  # fmt: skip
        case "perplexity":
            return {
                "metric": "nll", "template_version": TEMPLATE_VERSION["perplexity"],
                "metric_version": METRIC_VERSION["perplexity"], "documents": evaluation.perplexity.documents,
            }  # fmt: skip
        case "pmi":
            return {
                "metric": "pmi", "template_version": TEMPLATE_VERSION["pmi"], "metric_version": METRIC_VERSION["pmi"],
                **evaluation.pmi.model_dump(mode="json", exclude={"scorer_model"}),  # which is an input
            }  # fmt: skip
        case "phrase":
            return {
                "metric": unit.task, "template_version": TEMPLATE_VERSION["phrase"],
                "metric_version": METRIC_VERSION["phrase"],
                "short_tokens": evaluation.pmi.short_tokens, "stride_tokens": evaluation.pmi.stride_tokens,
                **evaluation.phrase.model_dump(mode="json", exclude={"file"}),
            }  # fmt: skip
        case "planted":
            return {
                "metric": unit.task, "metric_version": METRIC_VERSION["planted"],
                **evaluation.planted.model_dump(mode="json", exclude={"corpus"}),
            }  # fmt: skip
