"""Whether the data sets of the hub that an evaluation needs can be read here, asked before any model is loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenweight.evaluation import bbh, mmlu
from tokenweight.evaluation.longbench.data import HUB_REPO, HUB_REVISION
from tokenweight.recipes.schema import Evaluation, HubCorpus

ANSWER_SECONDS = 20.0


@dataclass(frozen=True)
class HubData:
    """A benchmark's data on the hub: where it is, one of its subsets, and the option that takes a local copy."""

    benchmark: str
    option: str
    repo_id: str
    revision: str
    subset: str | None


def unreachable(benchmarks: Collection[str], evaluation: Evaluation) -> list[str]:
    """One line for each benchmark whose hub data cannot be read, with the way out.

    Online the hub is asked for the pinned revision; with HF_HUB_OFFLINE set, the local cache must hold the data.
    """
    return [
        f"{data.benchmark}: the hub's {data.repo_id} cannot be read ({error}); go online, set HF_HUB_OFFLINE=1 where "
        f"`datasets` has it in its cache, or give a directory with {data.option}"
        for data in _needed(benchmarks, evaluation)
        if (error := _error(data, evaluation)) is not None
    ]


def _needed(benchmarks: Collection[str], evaluation: Evaluation) -> Iterator[HubData]:
    if "mmlu" in benchmarks and evaluation.mmlu.data == "hub":
        yield HubData("mmlu", "--mmlu", mmlu.HUB["repo_id"], mmlu.HUB["revision"], "abstract_algebra")
    if "bbh" in benchmarks and evaluation.bbh.data == "hub":
        yield HubData("bbh", "--bbh", bbh.HUB["repo_id"], bbh.HUB["revision"], "boolean_expressions")
    if "longbench" in benchmarks and evaluation.longbench.data == "hub":
        yield HubData("longbench", "--longbench", HUB_REPO, HUB_REVISION, "narrativeqa")
    corpus = evaluation.perplexity.corpus
    if {"perplexity", "pmi"} & set(benchmarks) and isinstance(corpus, HubCorpus) and not Path(corpus.repo_id).is_dir():
        yield HubData("perplexity", "--corpus", corpus.repo_id, corpus.revision, corpus.subset)


def _error(data: HubData, evaluation: Evaluation) -> str | None:
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_OFFLINE

    try:
        if HF_HUB_OFFLINE:
            _read_cache(data, evaluation)
        else:
            HfApi().dataset_info(data.repo_id, revision=data.revision, timeout=ANSWER_SECONDS)
    except Exception as error:  # datasets and the hub client raise many kinds; all mean that it cannot be read
        return type(error).__name__
    return None


def _read_cache(data: HubData, evaluation: Evaluation) -> None:
    if data.benchmark == "perplexity":
        from tokenweight.corpus.sources import documents

        next(documents(evaluation.perplexity.corpus, "validation"))
        return
    from datasets import load_dataset_builder

    load_dataset_builder(data.repo_id, data.subset, revision=data.revision)
