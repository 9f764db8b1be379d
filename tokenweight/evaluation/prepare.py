"""What a unit needs before a model is loaded: its prompts, its raw files, and the identity of its protocol."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tokenweight.corpus.sources import files_by_field
from tokenweight.errors import UserError
from tokenweight.evaluation import bbh, mmlu
from tokenweight.evaluation.ruler.tasks import RulerTask
from tokenweight.evaluation.units import Unit
from tokenweight.evaluation.vllm_check import OWN_HEAD
from tokenweight.recipes.schema import Evaluation, LongBench

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
WITHOUT_OUTPUTS = ("perplexity", "pmi", "phrase", "planted")  # one pass over texts gives their samples


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


def settings_of(unit: Unit, evaluation: Evaluation) -> Evaluation:
    """The settings that a unit's samples and scores depend on and no others: reading another one is an AttributeError."""
    own = _own_settings(unit, evaluation)
    if unit.benchmark in ("ruler", "longbench"):  # whose texts are in the prompts
        paths = dict.fromkeys(("haystack", "squad", "hotpotqa") if unit.benchmark == "ruler" else ("data",))
        own[unit.benchmark] = own[unit.benchmark].model_copy(update=paths)
    return Evaluation.model_construct(backend=evaluation.backend, precision=evaluation.precision, **own)


def prompt_settings_of(unit: Unit, evaluation: Evaluation) -> Evaluation:
    """As :func:`settings_of`, of the prompts alone, which know neither backend nor precision nor the metric."""
    own = _own_settings(unit, evaluation)
    if unit.benchmark == "longbench":
        own["longbench"] = own["longbench"].model_copy(update={"first_line": "lceg"})
    return Evaluation.model_construct(precision="fp32", **own)


def _own_settings(unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
    at = (unit.length_tokens,) if unit.length_tokens else ()
    match unit.benchmark:
        case "ruler":
            from tokenweight.evaluation.ruler.tasks import ruler_task

            read = source_field(ruler_task(unit.task))
            others = {name: None for name in ("haystack", "squad", "hotpotqa") if name != read}
            return {"ruler": evaluation.ruler.model_copy(update={"lengths_tokens": at, **others})}
        case "longbench":  # the border and its unit are the table's matter: rows have both lengths
            defaults = {name: LongBench.model_fields[name].default for name in ("split_tokens", "length_unit")}
            return {"longbench": evaluation.longbench.model_copy(update=defaults)}
        case "perplexity":
            return {"perplexity": evaluation.perplexity.model_copy(update={"lengths_tokens": at})}
        case "pmi" | "phrase" as benchmark:
            own: dict[str, Any] = {"pmi": evaluation.pmi.model_copy(update={"scorer_model": None})}  # which is an input
            if benchmark == "phrase":
                own["phrase"] = evaluation.phrase
            if benchmark == "pmi" or not evaluation.phrase.file:
                own["perplexity"] = evaluation.perplexity.model_copy(update={"lengths_tokens": (), "documents": None})
            return own
        case benchmark:
            return {benchmark: getattr(evaluation, benchmark)}


def source_field(task: RulerTask) -> str | None:
    """Which of RULER's texts a task's samples are made of."""
    if task.family == "qa":
        return task.questions
    return "haystack" if task.family == "niah" and task.needles.haystack == "essay" else None


def raw_files(unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
    """The raw files that a unit reads, shipped ones included, by the dotted field of `evaluation` that names them.

    None for data of the hub, whose revision is in the protocol. UserError: a file is missing (named, with what to do).
    """
    corpus_read = unit.benchmark in ("perplexity", "pmi") or (unit.benchmark == "phrase" and not evaluation.phrase.file)
    if corpus_read:
        return {
            f"perplexity.corpus{field}": files for field, files in files_by_field(evaluation.perplexity.corpus).items()
        }
    files = data_files(unit, evaluation)
    if unit.benchmark == "ruler":
        from tokenweight.evaluation.ruler.tasks import ruler_task

        field = f"ruler.{source_field(ruler_task(unit.task))}"
    else:
        field = "phrase.file" if unit.benchmark == "phrase" else f"{unit.benchmark}.data"
    return {field: files} if files else {}


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


def template_of(unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
    """What prepared prompts depend on beside tokenizer, settings and local files."""
    hub = protocol(unit, evaluation).get("hub")
    return {"template_version": template_version(unit), **({"hub": hub} if hub else {})}


def template_version(unit: Unit) -> int:
    """Version of a unit's prompts: its task's own where only that changed, else its benchmark's."""
    return _TASK_TEMPLATE_VERSION.get((unit.benchmark, unit.task), TEMPLATE_VERSION[unit.benchmark])


def scoring(unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
    """How a unit's outputs become scores: the metric, its version and packages, beside its settings."""
    packages = {name: version(name) for name in _METRIC_PACKAGES.get(unit.benchmark, ())}
    return {"metric": _metric(unit), "metric_version": METRIC_VERSION[unit.benchmark], "metric_packages": packages}


def protocol(unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
    """How a unit's model is asked, beside its settings: versions of prompts and harness, generation, the hub's data.

    Raises:
        UserError: the benchmark needs the backend hf.
    """
    if evaluation.backend != "hf" and unit.benchmark in OWN_HEAD:
        raise UserError(
            f"backend {evaluation.backend}: {unit.benchmark} reads every token's NLL, which the backend hf alone gives; "
            "leave it out, or use hf"
        )
    identity: dict[str, Any] = {"template_version": template_version(unit)}
    if unit.benchmark in WITHOUT_OUTPUTS:
        return identity
    identity |= {"harness": f"lm-eval {version('lm-eval')}", "chat_template": False}
    match unit.benchmark:
        case "ruler":
            from tokenweight.evaluation.ruler.tasks import ruler_task

            return identity | {
                "fewshot": int(unit.task in ("vt", "cwe")), "generation": _greedy(ruler_task(unit.task).tokens_to_generate),
            }  # fmt: skip
        case "longbench":
            from tokenweight.evaluation.longbench.data import HUB_REPO, HUB_REVISION
            from tokenweight.evaluation.longbench.tasks import longbench_task

            hub = {"repo_id": HUB_REPO, "revision": HUB_REVISION}
            generation = _greedy(longbench_task(unit.task).max_new_tokens)
            return identity | {"generation": generation, "hub": hub if evaluation.longbench.data == "hub" else None}
        case "mmlu":
            return identity | {
                "fewshot_order": "first_n of dev", "hub": mmlu.HUB if evaluation.mmlu.data == "hub" else None,
            }  # fmt: skip
    return identity | {
        "fewshot_order": "first_n of lm-eval's", "generation": _greedy(evaluation.bbh.max_new_tokens),
        "hub": bbh.HUB if evaluation.bbh.data == "hub" else None,
    }  # fmt: skip


def _greedy(max_new_tokens: int) -> dict[str, Any]:
    return {"do_sample": False, "max_new_tokens": max_new_tokens}


def _metric(unit: Unit) -> str:
    match unit.benchmark:
        case "ruler":
            from tokenweight.evaluation.ruler.tasks import ruler_task

            return ruler_task(unit.task).metric
        case "longbench":
            from tokenweight.evaluation.longbench.tasks import longbench_task

            return longbench_task(unit.task).metric
        case "mmlu":
            return mmlu.METRIC
        case "bbh":
            return bbh.METRIC
    return {"perplexity": "nll", "pmi": "pmi"}.get(unit.benchmark, unit.task)
