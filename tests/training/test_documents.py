"""Sequences of several documents under a weighting by position: attention and positions end with each document."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from training_calls import train
from transformers import LlamaConfig, PhiConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.phi.modeling_phi import PhiForCausalLM

from tokenweight.errors import UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Weighting
from tokenweight.training.models import check_documents_apart, load_model
from tokenweight.training.sequences import open_documents
from tokenweight.weighting import install_head, model_nll, weighted_nll
from tokenweight.weighting.shards import SequenceShard

EXACT = Weighting(score="exact", postprocessing="raw", threshold=8)
LENGTHS = [[64], [20, 10, 34], [2, 62], [33, 31]]  # of the documents of each sequence, BOS and separators included


@pytest.fixture(scope="module")
def packed_dir(tmp_path_factory):
    out = tmp_path_factory.mktemp("packed")
    tokens = np.random.default_rng(0).integers(3, 64, (4, 64), dtype=np.uint32)
    tokens[:, 0] = 1
    np.save(out / "tokens.npy", tokens)
    rows = [
        (sequence, max(start - 1, 0), length)
        for sequence, lengths in enumerate(LENGTHS)
        for start, length in zip(np.cumsum([0, *lengths]), lengths, strict=False)
        if length > 2  # the two are BOS and the separator of the document before
    ]
    columns = dict(zip(("sequence_id", "position", "tokens"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), out / "sequences.parquet")
    (out / "accounting.json").write_text(json.dumps({"bos": True, "long_tokens": 64}))
    return out


def test_positions_begin_anew_with_each_document_and_are_counted(packed_dir):
    documents = open_documents(packed_dir, 4)
    expected = [[place for length in lengths for place in range(length)] for lengths in LENGTHS]
    assert [documents.positions(row).tolist() for row in range(4)] == expected
    counts = np.bincount([place for row in expected for place in row[1:]], minlength=64)
    assert documents.position_counts.tolist() == counts.tolist()
    assert documents.several
    assert not open_documents(packed_dir, 1).several


@pytest.mark.parametrize("family", ["llama", "phi"])
def test_a_document_in_a_sequence_has_the_nll_that_it_has_alone(family):
    kinds = {"llama": (LlamaConfig, LlamaForCausalLM), "phi": (PhiConfig, PhiForCausalLM)}
    config, kind = kinds[family]
    shape = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    torch.manual_seed(0)
    model = kind(config(**shape, num_attention_heads=2, num_key_value_heads=2)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)
    install_head(model)
    check_documents_apart(model, SimpleNamespace(name="any"))
    ids = torch.randint(0, 50, (2, 40))
    lengths = [[17, 23], [40]]
    positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in lengths])
    together = model_nll(model.eval(), ids, position_ids=positions)
    assert (together - model_nll(model, ids))[0, 17:].abs().max() > 1e-2, "there is something to hide"
    for row, own in enumerate(lengths):
        for document, start in zip(ids[row].split(own), np.cumsum([0, *own]), strict=False):
            alone = model_nll(model, document[None])[0]
            torch.testing.assert_close(together[row, start : start + len(alone)], alone, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="would see each other"):
        model_nll(model, ids, position_ids=positions, shard=SequenceShard(40, 0, 2))


def test_a_model_that_shows_a_document_the_one_before_is_refused(base_dir, monkeypatch):
    model = load_model(base_dir, torch.float32)
    check_documents_apart(model, base_dir)
    monkeypatch.setattr("transformers.masking_utils.find_packed_sequence_indices", lambda position_ids: None)
    with pytest.raises(UserError, match="its attention cannot keep documents in a sequence apart"):
        check_documents_apart(model, base_dir)


def test_exact_trains_on_documents_apart_and_uniform_weights_as_ever(make_request, packed_dir, model_dir, tmp_path):
    def first_step(name, weighting):
        request = make_request(steps=1, weighting=weighting).model_copy(update={"chunk_dir": packed_dir})
        train(request, tmp_path / name, Execution(device="cpu", micro_batch_sequences=2), no_progress)
        return json.loads((tmp_path / name / "metrics.jsonl").read_text().splitlines()[0])

    model, documents = load_model(model_dir, torch.float32), open_documents(packed_dir, 4)
    ids = torch.from_numpy(np.load(packed_dir / "tokens.npy").astype(np.int64))
    positions = torch.stack([documents.positions(row) for row in range(4)])
    nll = model_nll(model, ids, position_ids=positions)
    targets = positions[:, 1:]
    buckets = (targets / 8).log2().floor().clamp_min(-1)
    counts = [(buckets == b).sum() for b in (0, 1, 2)]
    extra = sum((buckets == b) * sum(counts) / (3 * count) for b, count in enumerate(counts))
    step = first_step("exact", EXACT)
    assert step["weighted_nll"] == pytest.approx(weighted_nll(nll, 1 + extra).item(), rel=1e-5)
    assert step["nll"] == pytest.approx(nll.mean().item(), rel=1e-5)
    assert first_step("uniform", Weighting())["nll"] == pytest.approx(model_nll(model, ids).mean().item(), rel=1e-5)


def test_what_cannot_keep_documents_apart_is_refused(make_request, packed_dir, unfrozen, tmp_path):
    def refused(message, execution, **fields):
        request = make_request(steps=1, **fields).model_copy(update={"chunk_dir": packed_dir})
        with pytest.raises(UserError, match=message):
            train(request, tmp_path / "out", execution, no_progress)

    shared = Execution(device="cpu", launcher="torchrun", processes=2, sequence_parallel=2)
    refused("which processes that share it cannot", shared, weighting=EXACT)
    (tmp_path / "mine.py").write_text("def far(long_nll, short_nll, position): return position")
    far = Weighting(score=f"{tmp_path}/mine.py:far", postprocessing="raw")
    refused("windows do not end with documents", Execution(device="cpu"), weighting=far, scorer=unfrozen)
