"""The PMI of every token of the validation documents (Figure 3), streamed in chunks of the model's context.

PMI = log p_long - log p_short (Appendix A: conditional on the near context). p_long: the model on the whole chunk;
p_short: the scorer on short windows of it, exactly as in training. Chunks are training's (BOS and N - 1 tokens where the
tokenizer adds BOS), but a document's remainder is kept, so that every token is in. Nothing is held for longer than a
chunk but a document's text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenweight.corpus.encoding import Encoder
from tokenweight.corpus.sources import document_count, documents
from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.benchmark import Step, Unit, UnitRun
from tokenweight.evaluation.perplexity import CorpusBenchmark
from tokenweight.evaluation.pmi_histogram import ChunkValues, resume, tally, totals
from tokenweight.evaluation.rows import Row, sha256_ids
from tokenweight.recipes.schema import Evaluation
from tokenweight.recipes.schema import Pmi as Settings

if TYPE_CHECKING:
    import torch

    from tokenweight.evaluation.loaded_model import LoadedModel

Ids = NDArray[np.uint32]


class Pmi(CorpusBenchmark):
    name = "pmi"
    texts = "documents"

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        """One unit; none where the model reads no more than a window, which leaves no far context."""
        return [Unit(self.name, "validation")] if context_tokens > evaluation.pmi.short_tokens else []

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """Its own, without the scorer (an input), and the corpus of perplexity."""
        return {"pmi": evaluation.pmi.model_copy(update={"scorer_model": None})} | self.corpus_settings(evaluation)

    def metric(self, task: str) -> str:
        return "pmi"

    def total(self, evaluation: Evaluation) -> int:
        return evaluation.pmi.documents or document_count(evaluation.perplexity.corpus, "validation")

    def steps(
        self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Mapping[Unit, dict[int, Row]]
    ) -> Iterator[Step]:
        """A row of each chunk, in order. The histogram is written behind it: a row not counted there is made again.

        Raises:
            UserError: the head changes its logits, or the scorer does not fit the model or the windows.
        """
        import torch

        from tokenweight.training.vocabulary import bos_token_id

        (run,) = runs
        kept = rows[run.unit]
        histogram = resume(run.out_dir, kept)
        pmi, nll_model = evaluation.pmi, model.with_nll_head(self.name)
        scorer = load_scorer(run.prepared_dirs[0], pmi.short_tokens, model) if run.prepared_dirs else None
        bos = bos_token_id(model.lm.tokenizer, (scorer or nll_model).config)
        for chunk in chunks(evaluation, Encoder(model.checkpoint_dir), model.context_tokens, kept):
            ids = torch.from_numpy(chunk.ids.astype(np.int64)).to(nll_model.device)[None]
            values = score(ids, pmi, nll_model, scorer, bos)
            yield Step({run.unit: [_row(chunk, values, pmi.shift_k, model)]}, chunk.document + 1)
            histogram.add(values)
            histogram.write(run.out_dir)
        histogram.write(run.out_dir)

    def notes(self, rows: Sequence[Row], done: int) -> dict[str, Any]:
        return totals(rows)


@dataclass(frozen=True)
class Chunk:
    """A piece of a document as the model reads it: its number among all chunks, and the document's token it begins at."""

    index: int
    document: int
    first_token: int
    ids: Ids  # [at most the context], BOS included


def chunks(evaluation: Evaluation, encoder: Encoder, long_tokens: int, known: Mapping[int, Row]) -> Iterator[Chunk]:
    """All chunks of the validation documents in order; of the first ones, in `known`, no text is tokenised again but
    that of the last document among them."""
    index = len(known)
    last = json.loads(known[index - 1].output) if known else None
    texts = islice(documents(evaluation.perplexity.corpus, "validation"), evaluation.pmi.documents)
    for document, text in enumerate(texts):
        if last and document < last["document"]:
            continue
        for first_token, ids in document_chunks(encoder.stream(text.text), long_tokens, encoder.bos):
            if last and document == last["document"] and first_token <= last["first_token"]:
                continue
            yield Chunk(index, document, first_token, ids)
            index += 1


def document_chunks(batches: Iterable[Ids], long_tokens: int, bos: int | None) -> Iterator[tuple[int, Ids]]:
    """(first token, ids) of each chunk of at most `long_tokens` tokens, given a document's tokens in batches.

    With BOS chunks follow each other; without, a chunk's first token is the last of the one before: either way every
    token but the first without BOS is predicted exactly once.
    """
    front = np.array([] if bos is None else [bos], np.uint32)
    payload, step = long_tokens - len(front), long_tokens - 1
    waiting, first_token = np.zeros(0, np.uint32), 0
    for batch in batches:
        waiting = np.concatenate([waiting, batch])
        while len(waiting) > payload:  # what is left is the document's end, and a chunk of its own
            yield first_token, np.concatenate([front, waiting[:payload]])
            waiting, first_token = waiting[step:], first_token + step
    if len(front) + len(waiting) > 1:
        yield first_token, np.concatenate([front, waiting])


def load_scorer(scorer_dir: Path, short_tokens: int, model: LoadedModel) -> Any:
    """The frozen scorer beside the model, in its precision. UserError: another vocabulary, or a shorter context."""
    from tokenweight.training.models import load_model
    from tokenweight.training.vocabulary import load_tokenizer, vocabulary_sha256

    if vocabulary_sha256(load_tokenizer(scorer_dir)) != vocabulary_sha256(model.lm.tokenizer):
        raise UserError("the frozen scorer: has another vocabulary than the model; take one that shares it")
    scorer = load_model(scorer_dir, model.lm.model.dtype).to(model.lm.model.device).eval()
    if short_tokens > scorer.config.max_position_embeddings:
        raise UserError(
            f"evaluation.pmi.short_tokens: {short_tokens} exceeds the scorer's context "
            f"({scorer.config.max_position_embeddings}); lower it"
        )
    return scorer


def score(ids: torch.Tensor, pmi: Settings, model: Any, scorer: Any | None, bos: int | None) -> ChunkValues:
    """Both NLLs of one chunk, ids int64 [1, tokens]. A chunk no longer than a window has no far context."""
    import torch

    from tokenweight.training.scoring import windows_per_batch
    from tokenweight.weighting import model_nll, plan_windows, score_windows

    tokens = ids.shape[1]
    short_tokens = min(pmi.short_tokens, tokens)
    plan = plan_windows(tokens, short_tokens, min(pmi.stride_tokens, short_tokens - 1))
    with torch.no_grad():
        long_nll = model_nll(model, ids)
        short_nll = score_windows(
            scorer or model,
            ids,
            plan,
            bos_token_id=bos,
            windows_per_batch=windows_per_batch(plan, 1),
            first_window=scorer is not None,
        )
        if scorer is None:
            short_nll = plan.with_own_context(short_nll, long_nll)
    long, short = (nll[0].float().cpu().numpy() for nll in (long_nll, short_nll))
    return ChunkValues(long, short, plan.scored_ranges[0][1])


def _row(chunk: Chunk, values: ChunkValues, shift_k: float, model: LoadedModel) -> Row:
    mean = float(values.pmi.mean(dtype=np.float64))
    if not np.isfinite(mean):
        raise StageError(
            f"pmi: document {chunk.document} from token {chunk.first_token} gives an NLL that is not finite"
        )
    counts = {"document": chunk.document, "first_token": chunk.first_token, **tally(values, shift_k)}
    return Row(
        doc_id=chunk.index,
        prompt_sha256=sha256_ids(chunk.ids),
        n_prompt_tokens=len(chunk.ids),
        output=json.dumps(counts),
        metric="pmi",
        score=mean,
        bos_tokens=model.bos_tokens(chunk.ids.tolist()),
    )
