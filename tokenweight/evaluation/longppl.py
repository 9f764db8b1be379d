"""LongPPL (Fang et al. 2024, arXiv 2410.23771): perplexity of the tokens that the far context helps; beside it that of all.

Key tokens are those whose log-likelihood the far context raises by more than 2 nats, to more than -2 (the authors'
thresholds). Both NLLs are the PMI's, over whole validation documents: the model on chunks of its context, its scorer on
short windows of them. The authors let one evaluator choose the key tokens of all models; here each model chooses its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar

import numpy as np

from tokenweight.corpus.encoding import Encoder
from tokenweight.corpus.sources import document_count, documents
from tokenweight.evaluation.benchmark import Kept, Step, Unit, UnitRun
from tokenweight.evaluation.data import Task
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.pmi import ChunkValues, Floats, Pmi, by_windows, document_chunks
from tokenweight.evaluation.rows import Row
from tokenweight.recipes.schema import Evaluation

LEAST_GAIN_NATS, MOST_NLL_NATS = 2.0, 2.0


class LongPpl(Pmi):
    name = "longppl"
    tasks: ClassVar = {"key": Task(metric="nll"), "all": Task(metric="nll")}

    def steps(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Kept) -> Iterator[Step]:
        """A row of each document: the mean NLL of its key tokens, and of all."""
        settings, corpus, done = evaluation.pmi, evaluation.perplexity.corpus, 0
        units, encoder = {run.unit.task: run.unit for run in runs}, Encoder(model.checkpoint_dir)
        total = settings.documents or document_count(corpus, "validation")
        read, known = by_windows(runs[0], settings, model), set.intersection(*map(set, rows.values()))
        for doc_id, document in enumerate(islice(documents(corpus, "validation"), settings.documents)):
            done += 1
            if doc_id in known:
                continue
            of_text = document_chunks(encoder.stream(document.text), model.context_tokens, encoder.bos)
            values = [(ids, read(ids)) for _, ids in of_text]
            nlls = {"key": [key_nlls(own) for _, own in values], "all": [own.long_nll for _, own in values]}
            made = dict[Unit, list[Row]]()
            for task, parts in nlls.items():
                if sum(map(len, parts)):
                    nll, ids = np.concatenate(parts), np.concatenate([own for own, _ in values])
                    mean = float(nll.mean(dtype=np.float64))
                    made[units[task]] = [model.row_of(doc_id, ids, "nll", mean, str(len(nll)))]
            yield Step(made, done, total)
        notes = {
            unit: {"documents": done, "tokens": sum(int(row.output) for row in rows[unit].values())}
            for unit in units.values()
        }
        yield Step({}, done, complete=notes)


def key_nlls(values: ChunkValues) -> Floats:
    """The long-context NLL of a chunk's key tokens, in nats."""
    is_key = (values.pmi > LEAST_GAIN_NATS) & (values.long_nll < MOST_NLL_NATS)
    is_key[: values.first_window] = False
    return values.long_nll[is_key]
