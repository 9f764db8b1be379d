"""The stage `select`: of a corpus's sequences those to which long context says most (LongFilter, arXiv 2510.25804)."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tokenweight.pipeline.stage import Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.sequences import open_scores, open_tokens
from tokenweight.training.stages import Select


def select(stage: Select, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
    """Write a chunk artifact of the `stage.share` of sequences with the highest mean of short - long NLL, in their order.

    Every array of the candidates (tokens, the novel's labels), sequences.parquet, accounting.json, which it returns.
    """
    import pyarrow as pa  # starts a thread: not in a process that is forked later
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    chunk_dir = inputs["chunks"]
    shape = open_tokens(chunk_dir).shape
    long, short = (open_scores(inputs[role], shape[0]) for role in ("long", "short"))
    gains = np.empty(shape[0])
    for row, ((of_long, i), (of_short, j)) in enumerate(zip(long, short, strict=True)):
        gains[row] = np.subtract(of_short[j], of_long[i], dtype=np.float64).mean()
        progress(row + 1, shape[0], "sequences")
    kept = np.sort(np.argsort(-gains, kind="stable")[: max(1, round(stage.share * shape[0]))])
    for file in chunk_dir.glob("*.npy"):
        source = np.load(file, mmap_mode="r")
        array = np.lib.format.open_memmap(out_dir / file.name, "w+", source.dtype, (len(kept), *source.shape[1:]))  # type: ignore[no-untyped-call]
        for row, candidate in enumerate(kept):
            array[row] = source[candidate]
        array.flush()
    index = pq.read_table(chunk_dir / "sequences.parquet")
    index = index.filter(pc.is_in(index["sequence_id"], pa.array(kept)))
    numbers = pa.array(np.searchsorted(kept, index["sequence_id"]))
    pq.write_table(index.set_column(0, "sequence_id", numbers), out_dir / "sequences.parquet")  # type: ignore[no-untyped-call]
    account = json.loads((chunk_dir / "accounting.json").read_text(encoding="utf-8"))
    of_filter = {"candidates": len(gains), "mean_gain": gains.mean(), "mean_gain_kept": gains[kept].mean()}
    account = {
        **{name: account[name] for name in ("mixture", "long_tokens", "bos", "crosses_documents")},
        "sequences": len(kept),
        "documents_kept": len(index["document_id"].unique()),
        "filter": of_filter,
    }
    (out_dir / "accounting.json").write_text(json.dumps(account, indent=2) + "\n")
    return account
