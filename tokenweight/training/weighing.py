"""The stage `weigh`: from the NLL of both contexts to a data set of weights, as `datasets` and others read it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tokenweight.pipeline.stage import Inputs
from tokenweight.progress import Progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.sequences import ENTROPY, open_scores, open_tokens
from tokenweight.training.stages import Weigh
from tokenweight.weighting.weights import token_scores, token_weights
from tokenweight.weighting.windows import plan_windows

TOKENS_PER_SHARD = 2**22  # 84 MB


def weigh(stage: Weigh, inputs: Inputs, out_dir: Path, execution: Execution, progress: Progress) -> dict[str, Any]:
    """Write train-*.parquet, a sequence a row: input_ids [N], and of its M = N - 1 predictions long_nll, short_nll, score and
    loss_weights, where entry j is about token j + 1; document and position, its first token's place in there.

    Shards that an earlier attempt left complete are skipped. Random ties are drawn by `stage.seed` and the row.
    """
    import pyarrow as pa  # starts a thread: not in a process that is forked later
    import pyarrow.parquet as pq

    tokens, weighting = open_tokens(inputs["chunks"]), stage.weighting
    plan = plan_windows(tokens.shape[1], stage.short_tokens, stage.stride_tokens)
    scores = {role: open_scores(inputs[role], len(tokens)) for role in ("long", "short")}
    if "long_entropy" in weighting.inputs:
        scores["entropy"] = open_scores(inputs["long"], len(tokens), ENTROPY)
    index = pq.read_table(inputs["chunks"] / "sequences.parquet", columns=["document_id", "start_token"])
    rows = max(1, TOKENS_PER_SHARD // tokens.shape[1])
    position = torch.arange(1.0, tokens.shape[1])[None]
    counts = torch.arange(tokens.shape[1]).clamp_max(1)  # each but 0 is predicted once a sequence
    firsts = range(0, len(tokens), rows)
    for number, first in enumerate(firsts):
        path = out_dir / f"train-{number:05d}-of-{len(firsts):05d}.parquet"
        own = range(first, min(first + rows, len(tokens)))
        if not path.exists():
            read = {
                name: torch.from_numpy(np.stack([shard[row] for shard, row in one[own.start : own.stop]]))
                for name, one in scores.items()
            }
            long_nll, short_nll, entropy = read["long"], read["short"], read.get("entropy")
            if stage.own_first_window:
                short_nll = plan.with_own_context(short_nll, long_nll)
            given = {**weighting.numbers, "position": position.expand_as(long_nll), "position_counts": counts}
            columns = {
                "input_ids": np.asarray(tokens[own.start : own.stop], np.int32),
                "long_nll": long_nll.numpy(),
                "short_nll": short_nll.numpy(),
                "score": token_scores(weighting.score, long_nll, short_nll, long_entropy=entropy, **given).numpy(),
                "loss_weights": token_weights(
                    long_nll,
                    short_nll,
                    weighting,
                    sequence_ids=own,
                    seed=stage.seed,
                    long_entropy=entropy,
                    position_counts=counts,
                ).numpy(),
            }
            lists = {
                name: pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
                for name, values in columns.items()
            }
            places = index.slice(own.start, len(own))
            lists |= {"document": places["document_id"], "position": places["start_token"]}
            partial = path.with_suffix(".partial")
            pq.write_table(pa.table(lists), partial, row_group_size=max(1, rows // 8))  # type: ignore[no-untyped-call]
            partial.rename(path)
        progress(own.stop, len(tokens), "sequences")
    documents = len(index["document_id"].unique())
    return {"sequences": len(tokens), "tokens": tokens.size, "documents": documents, "shards": len(firsts)}
