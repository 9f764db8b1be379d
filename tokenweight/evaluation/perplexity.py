"""Perplexity by context length (Table 9): mean NLL of the first N tokens of each validation document.

One pass over the longest length serves all lengths: the NLL of a prefix is a prefix of the NLLs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.corpus.files import list_files
from tokenweight.corpus.sources import documents, file_parts
from tokenweight.evaluation.benchmark import HubData, Kept, PassBenchmark, Step, Unit, UnitRun, within
from tokenweight.evaluation.rows import Row
from tokenweight.recipes.schema import Evaluation, HubCorpus

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel


class CorpusBenchmark(PassBenchmark):
    """A pass over the validation documents of perplexity's corpus."""

    def raw_files(self, unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
        parts = file_parts(evaluation.perplexity.corpus)
        return {f"perplexity.corpus{field}": list_files(part) for field, part in parts.items()}

    def hub(self, evaluation: Evaluation) -> HubData | None:
        """Where the corpus is on the hub, if it is there and not in a directory of that name."""
        corpus = evaluation.perplexity.corpus
        if not isinstance(corpus, HubCorpus) or Path(corpus.repo_id).is_dir():
            return None
        return HubData(corpus.repo_id, corpus.revision, corpus.subset, "--corpus")

    def corpus_settings(self, evaluation: Evaluation) -> dict[str, Any]:
        """The corpus alone of perplexity's settings, for another benchmark's identity."""
        return {"perplexity": evaluation.perplexity.model_copy(update={"lengths_tokens": (), "documents": None})}


class Perplexity(CorpusBenchmark):
    name = "perplexity"
    texts = "documents"
    metric_name = "nll"

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        lengths = within(evaluation.perplexity.lengths_tokens, context_tokens)
        return [Unit(self.name, "validation", n) for n in lengths]

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        lengths = (unit.length_tokens,)
        return {"perplexity": evaluation.perplexity.model_copy(update={"lengths_tokens": lengths})}

    def total(self, evaluation: Evaluation) -> int:
        return evaluation.perplexity.documents or 0

    def steps(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Kept) -> Iterator[Step]:
        """A row of each document at each length that it fills."""
        from tokenweight.corpus.encoding import encode_prefix

        nll_model = model.with_nll_head(self.name)
        lengths = {run.unit: run.unit.length_tokens or 0 for run in runs}
        known = set.intersection(*map(set, rows.values()))
        done = len(known)
        texts = islice(documents(evaluation.perplexity.corpus, "validation"), evaluation.perplexity.documents)
        for doc_id, document in enumerate(texts):
            if doc_id in known:
                continue
            longest = max(lengths.values())
            ids: list[int] = encode_prefix(model.lm.tokenizer, document.text, longest)["input_ids"][:longest]
            fitting = {unit: n for unit, n in lengths.items() if n <= len(ids)}
            done += 1
            made: dict[Unit, list[Row]] = {}
            if fitting:
                nll = _nll(nll_model, ids[: max(fitting.values())])
                made = {
                    unit: [model.row_of(doc_id, ids[:n], "nll", float(nll[: n - 1].mean()))]
                    for unit, n in fitting.items()
                }
            yield Step(made, done)

    def notes(self, rows: Sequence[Row], done: int) -> dict[str, Any]:
        return {"documents": done, "documents_too_short": done - len(rows)}


def _nll(model: Any, ids: list[int]) -> Any:
    """NLL of each token but the first in nats, float64 [M]."""
    import torch

    from tokenweight.weighting import model_nll

    with torch.no_grad():
        return model_nll(model, torch.tensor([ids], device=model.device))[0].double().cpu().numpy()
