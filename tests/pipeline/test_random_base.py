"""`--base random:CONFIG` through the stages, small: made, scored, extended, trained, evaluated with and without training."""

import json
from pathlib import Path

import pytest

from tokenweight.pipeline.store import Store, read_record
from tokenweight.planning.graph import Planner
from tokenweight.progress import no_progress
from tokenweight.recipes import Inputs, load_all
from tokenweight.recipes.execution import execution_for
from tokenweight.tasks.pieces import make_piece

CONFIG = {
    "model_type": "llama", "vocab_size": 5000, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 6,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}  # fmt: skip
SMALL = (
    "base.layers=2", "training.steps=2", "extension.long_tokens=2048", "chunking.long_tokens=2048",
    "corpus.documents=6", "corpus.document_tokens=6000", "corpus.validation_documents=1",
    "evaluation.perplexity.documents=1", "evaluation.perplexity.lengths_tokens=[1024]",
)  # fmt: skip


@pytest.mark.slow
def test_a_random_base_goes_through_every_stage(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    store, execution = Store(tmp_path / "store"), execution_for("smoke", device="cpu")
    inputs = Inputs(base=f"random:{tmp_path / 'config.json'}", settings=SMALL)
    recipes = ["table-3/no-train-8k", "table-3/frozen-sparse"]
    graph = Planner(store).graph(load_all(recipes, "smoke", inputs), ["perplexity"])
    made = []
    for node in graph.artifacts:
        if node.stage.name != "evaluate":
            make_piece([node], store, execution, no_progress, print)
            made.append(node.stage.name)
    assert made == ["initialize", "chunk", "score", "extend", "train"]
    weights = {path.relative_to(store.root).parts[0] for path in store.root.rglob("*.safetensors")}
    assert weights == {"score", "train"}  # scores are kept in the same format; no base is
    for recipe in recipes:
        make_piece(graph.evaluations[recipe], store, execution, no_progress, print)
        facts = read_record(store.path(graph.evaluations[recipe][0].identity))["facts"]
        assert facts["mean_score"] == pytest.approx(8.5, abs=0.1)  # ln 5000: it knows nothing
