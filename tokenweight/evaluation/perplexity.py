"""Perplexity by context length (Table 9): mean NLL of the first N tokens of each validation document.

One pass over the longest length serves all lengths: the NLL of a prefix is a prefix of the NLLs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from tokenweight.corpus.encoding import encode_prefix
from tokenweight.corpus.files import list_files
from tokenweight.corpus.sources import documents, file_parts
from tokenweight.evaluation.benchmark import Benchmark, HubData, Kept, Step, Unit, UnitRun
from tokenweight.evaluation.data import Task
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.rows import Row
from tokenweight.recipes.schema import Corpus, Evaluation, HubCorpus, NovelCorpus


class CorpusBenchmark(Benchmark):
    """A pass over the validation documents of perplexity's corpus."""

    def corpus(self, evaluation: Evaluation) -> Corpus | None:
        return evaluation.perplexity.corpus

    def reads_shipped(self, evaluation: Evaluation) -> bool:
        return isinstance(evaluation.perplexity.corpus, NovelCorpus)

    def raw_files(self, unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
        parts = file_parts(evaluation.perplexity.corpus)
        return {f"perplexity.corpus{field}": list_files(part) for field, part in parts.items()}

    def hub(self, evaluation: Evaluation) -> HubData | None:
        """Where the corpus is on the hub, if it is there and not in a directory of that name."""
        corpus = self.corpus(evaluation)
        if not isinstance(corpus, HubCorpus) or Path(corpus.repo_id).is_dir():
            return None
        return HubData(corpus.repo_id, corpus.revision, corpus.subset, "--corpus")

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """Its own, the windows of the PMI without the scorer (an input), and the corpus alone of perplexity."""
        own = super().settings_of(unit, evaluation) | {"pmi": evaluation.pmi.model_copy(update={"scorer_model": None})}
        if self.corpus(evaluation):
            own["perplexity"] = evaluation.perplexity.model_copy(update={"lengths_tokens": (), "documents": None})
        return own


class Perplexity(CorpusBenchmark):
    name = "perplexity"
    tasks: ClassVar = {"validation": Task(metric="nll")}

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        return [Unit(self.name, "validation", n) for n in evaluation.perplexity.lengths_tokens if n <= context_tokens]

    def samples_asked(self, evaluation: Evaluation) -> float | None:
        settings = evaluation.perplexity
        return settings.documents or getattr(settings.corpus, "validation_documents", None)

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        lengths = (unit.length_tokens,)
        return {"perplexity": evaluation.perplexity.model_copy(update={"lengths_tokens": lengths})}

    def steps(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Kept) -> Iterator[Step]:
        """A row of each document at each length that it fills."""
        import torch

        from tokenweight.weighting import model_nll

        settings, done, nll_model = evaluation.perplexity, 0, model.with_nll_head(self.name)
        lengths = {run.unit: run.unit.length_tokens or 0 for run in runs}
        longest, known = max(lengths.values()), set.intersection(*map(set, rows.values()))
        for doc_id, document in enumerate(islice(documents(settings.corpus, "validation"), settings.documents)):
            done += 1
            if doc_id in known:
                continue
            ids: list[int] = encode_prefix(model.lm.tokenizer, document.text, longest)["input_ids"][:longest]
            made: dict[Unit, list[Row]] = {}
            if fitting := {unit: n for unit, n in lengths.items() if n <= len(ids)}:
                given = torch.tensor([ids[: max(fitting.values())]], device=nll_model.device)
                with torch.no_grad():
                    nll = model_nll(nll_model, given)[0].double().cpu().numpy()
                for unit, n in fitting.items():
                    made[unit] = [model.row_of(doc_id, ids[:n], "nll", float(nll[: n - 1].mean()))]
            yield Step(made, done, settings.documents or 0)
        notes = {unit: {"documents": done, "documents_too_short": done - len(own)} for unit, own in rows.items()}
        yield Step({}, done, complete=notes)
