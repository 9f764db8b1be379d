"""LongFilter: the sequences that gain most from long context, against a plain computation."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution
from tokenweight.training.sequences import shard_path, write_shard
from tokenweight.training.stages import Select


def test_the_share_that_gains_most_is_a_chunk_artifact_of_its_own(tmp_path):
    draw, folders = np.random.default_rng(0), {role: tmp_path / role for role in ("chunks", "long", "short")}
    for folder in folders.values():
        folder.mkdir()
    arrays = {"tokens": np.uint32, "kinds": np.uint8}
    written = {name: draw.integers(0, 99, (7, 12)).astype(dtype) for name, dtype in arrays.items()}
    for name, array in written.items():
        np.save(folders["chunks"] / f"{name}.npy", array)
    pieces = [(0, "a"), (1, "b"), (2, "a"), (2, "c"), (3, "d"), (4, "e"), (5, "f"), (5, "g"), (6, "h")]
    columns = {"sequence_id": [row for row, _ in pieces], "document_id": [name for _, name in pieces]}
    pq.write_table(pa.table(columns), folders["chunks"] / "sequences.parquet")
    account = {"mixture": "per_document", "long_tokens": 12, "bos": True, "crosses_documents": False, "tokens": 99}
    (folders["chunks"] / "accounting.json").write_text(json.dumps(account))
    nll = {role: draw.random((7, 11), dtype=np.float32) for role in ("long", "short")}
    for role, values in nll.items():
        write_shard(shard_path(folders[role], 0), nll=values[:4])
        write_shard(shard_path(folders[role], 1), nll=values[4:])

    out = tmp_path / "out"
    out.mkdir()
    facts = Select(share=0.4).run(folders, out, Execution(), no_progress)

    gains = [
        sum(short - long for short, long in zip(*rows, strict=True)) / 11
        for rows in zip(nll["short"], nll["long"], strict=True)
    ]
    best = sorted(sorted(range(7), key=lambda row: -gains[row])[:3])  # 0.4 of 7
    for name, array in written.items():
        assert np.array_equal(np.load(out / f"{name}.npy"), array[best])
    index = pq.read_table(out / "sequences.parquet").to_pylist()
    expected = [(best.index(row), name) for row, name in pieces if row in best]
    assert [(one["sequence_id"], one["document_id"]) for one in index] == expected
    assert facts == json.loads((out / "accounting.json").read_text())
    assert facts["sequences"] == 3
    np.testing.assert_allclose(facts["filter"]["mean_gain_kept"], np.mean([gains[row] for row in best]), rtol=1e-6)

    np.testing.assert_allclose(facts["filter"]["mean_gain"], np.mean(gains), rtol=1e-6)
    assert facts["filter"]["candidates"] == 7
    assert facts["documents_kept"] == len({name for row, name in pieces if row in best})
    few = tmp_path / "few"
    few.mkdir()
    steps = []
    assert Select(share=0.01).run(folders, few, Execution(), lambda *args: steps.append(args))["sequences"] == 1
    assert steps == [(row, 7, "sequences") for row in range(1, 8)]
    write_shard(shard_path(folders["short"], 0), nll=nll["long"][:4])  # all alike: the first stay
    write_shard(shard_path(folders["short"], 1), nll=nll["long"][4:])
    Select(share=0.4).run(folders, few, Execution(), no_progress)
    assert np.array_equal(np.load(few / "tokens.npy"), written["tokens"][:3])
