"""The PMI of every token of the validation documents (Figure 3), streamed in chunks of the model's context.

PMI = log p_long - log p_short (Appendix A: conditional on the near context). p_long: the model on the whole chunk;
p_short: the scorer on short windows of it, exactly as in training. Chunks are training's (BOS and N - 1 tokens where the
tokenizer adds BOS), but a document's remainder is kept, so that every token is in. Nothing is held for longer than a
chunk but a document's text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tokenweight.corpus.encoding import Encoder
from tokenweight.corpus.sources import document_count, documents
from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import Kept, Step, Unit, UnitRun
from tokenweight.evaluation.data import Task
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.perplexity import CorpusBenchmark
from tokenweight.evaluation.rows import Row, write_table
from tokenweight.recipes.schema import Evaluation, ScoreName
from tokenweight.recipes.schema import Pmi as Settings

Ids = NDArray[np.uint32]
Floats = NDArray[np.float32]

HISTOGRAM_NAME = "histogram.parquet"
BINS_PER_NAT = 256
LIMIT_NATS = 16  # a PMI beyond +-16 is counted in the first or the last bin, which have no outer end
EDGES: NDArray[np.float64] = np.arange(-LIMIT_NATS * BINS_PER_NAT, LIMIT_NATS * BINS_PER_NAT + 1) / BINS_PER_NAT
NEAR_ZERO_NATS = 0.05
VARIANTS: tuple[ScoreName, ...] = ("abs_pmi", "ppmi", "npmi", "sppmi", "snpmi")  # Section 5.3
PARTS = ("first_window", "far_context")  # of a chunk's tokens
_CHUNKS = b"chunks"


class Pmi(CorpusBenchmark):
    name = "pmi"
    tasks: ClassVar = {"validation": Task(metric="pmi")}

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        """One unit; none where the model reads no more than a window, which leaves no far context."""
        if self.refusal(evaluation, context_tokens, context_tokens):
            return []
        return super().units(evaluation, context_tokens)

    def refusal(self, evaluation: Evaluation, context_tokens: int, longest_tokens: int) -> str | None:
        window, short = evaluation.pmi.short_tokens, context_tokens // 4
        if context_tokens > window:
            return None
        return (
            f"is read with {context_tokens} tokens, which leaves {self.name} no far context beside a short one of {window}; "
            f"give less with --set evaluation.pmi.short_tokens={short} "
            f"--set evaluation.pmi.stride_tokens={max(1, short * 3 // 4)}"
        )

    def steps(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Kept) -> Iterator[Step]:
        """A row of each chunk, in order. The histogram is written behind it: a row not counted there is made again."""
        (run,) = runs
        kept, settings, corpus = rows[run.unit], evaluation.pmi, evaluation.perplexity.corpus
        histogram, encoder = resume(run.out_dir, kept), Encoder(model.checkpoint_dir)
        total = settings.documents or document_count(corpus, "validation")
        read, done = by_windows(run, settings, model), 0
        chunks = (
            (document, *chunk)
            for document, text in enumerate(islice(documents(corpus, "validation"), settings.documents))
            for chunk in document_chunks(encoder.stream(text.text), model.context_tokens, encoder.bos)
        )
        for document, first_token, ids in islice(chunks, len(kept), None):
            values, done = read(ids), document + 1
            output = json.dumps({"document": document, "first_token": first_token, **tally(values, settings.shift_k)})
            mean = float(values.pmi.mean(dtype=np.float64))
            yield Step({run.unit: [model.row_of(histogram.chunks, ids, "pmi", mean, output)]}, done, total)
            histogram.add(values)
            histogram.write(run.out_dir)
        histogram.write(run.out_dir)
        outputs = [json.loads(row.output) for row in kept.values()]
        notes = {f"tokens_{part}": sum(output[part]["tokens"] for output in outputs) for part in PARTS}
        notes["documents"] = len({output["document"] for output in outputs})
        yield Step({}, done, complete={run.unit: notes})


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


def by_windows(run: UnitRun, pmi: Settings, model: LoadedModel) -> Callable[[Sequence[int] | Ids], ChunkValues]:
    """What gives both NLLs of token ids; short windows are read by the prepared scorer, or the model itself.
    UserError: the head changes the model's logits, or the scorer has another vocabulary or a shorter context."""
    from tokenweight.training.models import bos_token_id, load_model, load_tokenizer

    nll_model, scorer = model.with_nll_head(run.unit.benchmark), None
    for directory in run.prepared_dirs:
        if load_tokenizer(directory).get_vocab() != model.lm.tokenizer.get_vocab():
            raise UserError("evaluation.pmi.scorer_model: has another vocabulary than the model; use one with the same")
        scorer = load_model(directory, nll_model.dtype).to(nll_model.device).eval()
        if pmi.short_tokens > scorer.config.max_position_embeddings:
            raise UserError(
                f"evaluation.pmi.short_tokens: {pmi.short_tokens} exceeds the scorer's context "
                f"({scorer.config.max_position_embeddings}); lower it"
            )
    bos = bos_token_id(model.lm.tokenizer, (scorer or nll_model).config)
    return lambda ids: score(ids, pmi, nll_model, scorer, bos)


def score(ids: Sequence[int] | Ids, pmi: Settings, model: Any, scorer: Any | None, bos: int | None) -> ChunkValues:
    """Both NLLs of one chunk. A chunk no longer than a window has no far context."""
    import torch

    from tokenweight.weighting import model_nll, plan_windows, score_windows

    given = torch.as_tensor(np.asarray(ids, np.int64), device=model.device)[None]
    short_tokens = min(pmi.short_tokens, len(ids))
    plan = plan_windows(len(ids), short_tokens, min(pmi.stride_tokens, short_tokens - 1))
    with torch.no_grad():
        long_nll = model_nll(model, given)
        short_nll = score_windows(scorer or model, given, plan, bos_token_id=bos, first_window=scorer is not None)
        if scorer is None:
            short_nll = plan.with_own_context(short_nll, long_nll)
    long, short = (nll[0].float().cpu().numpy() for nll in (long_nll, short_nll))
    return ChunkValues(long, short, plan.scored_ranges[0][1])


# --- What is kept of the PMI of many tokens: a fine histogram of fixed size in a file, and counts for each chunk.
# From the histogram come quantiles and a kernel density estimate (Figure 3), from the counts exact shares and moments.


@dataclass(frozen=True)
class ChunkValues:
    """NLL of a chunk's predictions by the long and by the short context, both float32 [M], in nats.

    The first `first_window` predictions had the same tokens before them in either pass: no far context.
    """

    long_nll: Floats
    short_nll: Floats
    first_window: int

    @property
    def pmi(self) -> Floats:
        """log p_long - log p_short of each prediction, float32 [M]."""
        values: Floats = self.short_nll - self.long_nll
        return values

    @property
    def parts(self) -> dict[str, slice]:
        """The predictions of each part."""
        return dict(zip(PARTS, (slice(0, self.first_window), slice(self.first_window, None)), strict=True))


@dataclass
class Histogram:
    """Counts [2, bins], of tokens of first windows and of tokens with far context, in so many `chunks`.

    Bin 0 lies below the first edge, bin i from edge i - 1 up to but not including edge i, the last from the last edge.
    """

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, len(EDGES) + 1), np.int64))
    chunks: int = 0

    def add(self, values: ChunkValues) -> None:
        bins = np.searchsorted(EDGES, values.pmi.astype(np.float64), side="right")
        self.counts += [np.bincount(bins[part], minlength=len(EDGES) + 1) for part in values.parts.values()]
        self.chunks += 1

    def write(self, out_dir: Path) -> None:
        """Write `histogram.parquet` (low, high, first_window, far_context) complete or not at all."""
        import pyarrow as pa

        ends = {"low": np.concatenate([[-math.inf], EDGES]), "high": np.concatenate([EDGES, [math.inf]])}
        table = pa.table(ends | dict(zip(PARTS, self.counts, strict=True)))
        write_table(table.replace_schema_metadata({_CHUNKS: str(self.chunks).encode()}), out_dir / HISTOGRAM_NAME)

    @staticmethod
    def read(out_dir: Path) -> Histogram:
        """What `write` wrote; an empty histogram where there is none that can be read."""
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(out_dir / HISTOGRAM_NAME)
        except (OSError, ValueError):  # pyarrow's own among them
            return Histogram()
        return Histogram(np.stack([table[part].to_numpy() for part in PARTS]), int(table.schema.metadata[_CHUNKS]))


def resume(out_dir: Path, rows: dict[int, Row]) -> Histogram:
    """The histogram that an interrupted run left; removes the rows of chunks that it does not count."""
    histogram = Histogram.read(out_dir)
    if not set(range(histogram.chunks)) <= set(rows):
        histogram = Histogram()
    for index in [index for index in rows if index >= histogram.chunks]:
        del rows[index]
    return histogram


def tally(values: ChunkValues, shift_k: float) -> dict[str, dict[str, Any]]:
    """Counts and moments of a chunk, of its first window and of its tokens with far context.

    tokens; sum, squares (of the PMI) and its min and max; near_zero: |PMI| < 0.05; zero: tokens whose score is 0, by
    score function (Section 5.3, shift ln `shift_k`).
    """
    import torch

    from tokenweight.weighting.weights import token_scores

    found = {}
    for name, part in values.parts.items():
        exact = values.pmi[part].astype(np.float64)
        nlls = torch.from_numpy(values.long_nll[part]), torch.from_numpy(values.short_nll[part])
        found[name] = {
            "tokens": len(exact),
            "sum": float(exact.sum()),
            "squares": float((exact**2).sum()),
            "min": float(exact.min()) if len(exact) else None,
            "max": float(exact.max()) if len(exact) else None,
            "near_zero": int((np.abs(exact) < NEAR_ZERO_NATS).sum()),
            "zero": {kind: int((token_scores(kind, *nlls, shift_k=shift_k) == 0).sum()) for kind in VARIANTS},
        }
    return found
