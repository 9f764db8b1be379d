"""Whether the data sets of the hub that an evaluation needs can be read here, asked before any model is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenweight.evaluation import bbh, mmlu
from tokenweight.evaluation.longbench.data import HUB_REPO, HUB_REVISION
from tokenweight.recipes.schema import Evaluation, HubCorpus


def unreachable(benchmarks: Iterable[str], evaluation: Evaluation) -> list[str]:
    """One line for each benchmark whose hub data is neither in the local cache nor to be had, with the way out."""
    lines = []
    for benchmark, option, repo_id, revision, subset in _sources(tuple(benchmarks), evaluation):
        error = _error(repo_id, revision, subset)
        if error is not None:
            lines.append(
                f"{benchmark}: the hub's {repo_id} is not in the local cache and cannot be reached ({error}); "
                f"go online once, or give a directory with {option}"
            )
    return lines


def _sources(benchmarks: tuple[str, ...], evaluation: Evaluation) -> Iterator[tuple[str, str, str, str, str | None]]:
    """(benchmark, option, repository, revision, one of its subsets)."""
    if "mmlu" in benchmarks and evaluation.mmlu.data == "hub":
        yield "mmlu", "--mmlu", mmlu.HUB["repo_id"], mmlu.HUB["revision"], "abstract_algebra"
    if "bbh" in benchmarks and evaluation.bbh.data == "hub":
        yield "bbh", "--bbh", bbh.HUB["repo_id"], bbh.HUB["revision"], "boolean_expressions"
    if "longbench" in benchmarks and evaluation.longbench.data == "hub":
        yield "longbench", "--longbench", HUB_REPO, HUB_REVISION, "narrativeqa"
    corpus = evaluation.perplexity.corpus
    if "perplexity" in benchmarks and isinstance(corpus, HubCorpus) and not Path(corpus.repo_id).is_dir():
        yield "perplexity", "--corpus", corpus.repo_id, corpus.revision, corpus.subset


def _error(repo_id: str, revision: str, subset: str | None) -> str | None:
    from datasets import load_dataset_builder

    try:
        load_dataset_builder(repo_id, subset, revision=revision)
    except Exception as error:  # datasets and the hub client raise many kinds; all mean that it cannot be read
        return type(error).__name__
    return None
