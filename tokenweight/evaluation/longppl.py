"""LongPPL (Fang et al. 2024, arXiv 2410.23771): perplexity of the tokens that the far context helps.

Key tokens are those whose log-likelihood the far context raises by more than 2 nats, to more than -2 (the authors'
thresholds). Both NLLs are the PMI's: the model on the whole text, its scorer on short windows. The authors let one
evaluator choose the key tokens of all models; here each model chooses its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from tokenweight.corpus.encoding import encode_prefix
from tokenweight.corpus.sources import documents
from tokenweight.evaluation.benchmark import Kept, Step, Unit, UnitRun
from tokenweight.evaluation.data import Task
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.pmi import ChunkValues, Floats, Pmi, by_windows
from tokenweight.evaluation.rows import Row
from tokenweight.recipes.schema import Evaluation

LEAST_GAIN_NATS, MOST_NLL_NATS = 2.0, 2.0


class LongPpl(Pmi):
    """Over the first tokens of each validation document, as many as the longest of perplexity's lengths that the model reads."""

    name = "longppl"
    tasks: ClassVar = {"validation": Task(metric="nll")}

    def settings(self, evaluation: Evaluation) -> Any:
        return evaluation.pmi

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        windows = evaluation.pmi.model_copy(update={"scorer_model": None, "documents": None})
        return {"perplexity": evaluation.perplexity, "pmi": windows}

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        """One; none where no length leaves a far context."""
        return super().units(evaluation, context_tokens) if _tokens(evaluation, context_tokens) else []

    def steps(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Kept) -> Iterator[Step]:
        """A row of each document that is long enough: the mean NLL of its key tokens."""
        (run,) = runs
        settings, tokens, done = evaluation.perplexity, _tokens(evaluation, model.context_tokens), 0
        read = by_windows(run, evaluation.pmi, model)
        for doc_id, document in enumerate(islice(documents(settings.corpus, "validation"), settings.documents)):
            done += 1
            if doc_id not in rows[run.unit]:
                ids = encode_prefix(model.lm.tokenizer, document.text, tokens)["input_ids"][:tokens]
                made = list[Row]()
                if len(ids) == tokens and len(nlls := key_nlls(read(ids))):
                    made = [model.row_of(doc_id, ids, "nll", float(nlls.mean(dtype=np.float64)), str(len(nlls)))]
                yield Step({run.unit: made}, done, settings.documents or 0)
        own = rows[run.unit].values()
        notes = {
            "documents": done,
            "documents_left_out": done - len(own),
            "key_tokens": sum(int(row.output) for row in own),
        }
        yield Step({}, done, complete={run.unit: notes})


def key_nlls(values: ChunkValues) -> Floats:
    """The long-context NLL of a text's key tokens, in nats."""
    is_key = (values.pmi > LEAST_GAIN_NATS) & (values.long_nll < MOST_NLL_NATS)
    is_key[: values.first_window] = False
    return values.long_nll[is_key]


def _tokens(evaluation: Evaluation, context_tokens: int) -> int:
    fitting = [n for n in evaluation.perplexity.lengths_tokens if evaluation.pmi.short_tokens < n <= context_tokens]
    return max(fitting, default=0)
