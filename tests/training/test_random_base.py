"""`base: random`: a real configuration, weights drawn where they are needed, whole in no process under ZeRO-3."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_calls import TrainRequest, train
from transformers import AutoConfig, AutoModelForCausalLM

from tokenweight.assets import SHIPPED_CONFIGS, smoke_base_dir
from tokenweight.context.extend import extend, load_config
from tokenweight.errors import UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Extension, RandomBase, Scorer, Training, Weighting
from tokenweight.training.models import causal_lm, load_model
from tokenweight.training.stages import Initialize, Train, config_values

sys.path.insert(0, str(Path(__file__).parent))
from random_base_shares import Held

PARAMETERS = {"llama3-8b": 8_030_261_248, "llama3.2-1b": 1_235_814_400, "phi-2": 2_779_683_840}
TINY = {
    "model_type": "llama", "vocab_size": 4096, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 6,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}  # fmt: skip


def made(base: RandomBase, tokenizer_dir: Path, out_dir: Path) -> dict[str, Any]:
    """The base as the stage makes it."""
    stage = Initialize(config=config_values(base), seed=base.seed)
    return stage.run({"tokenizer": tokenizer_dir}, out_dir, Execution(), no_progress)


def base(**fields):
    return RandomBase(**{"config": "llama3-8b", "context_tokens": 64, **fields})


@pytest.fixture(scope="module")
def config_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("config") / "config.json"
    file.write_text(json.dumps(TINY))
    return str(file)


@pytest.fixture(scope="module")
def tiny_base(config_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("tiny-base")
    made(base(config=config_file, seed=3), smoke_base_dir(), out)
    return out / "model"


@pytest.mark.parametrize("name", SHIPPED_CONFIGS)
def test_the_shipped_configurations_are_the_papers_models(name, tmp_path):
    assert made(base(config=name), smoke_base_dir(), tmp_path)["parameters"] == PARAMETERS[name]
    config = AutoConfig.from_pretrained(tmp_path / "model")
    assert config.max_position_embeddings == 64
    assert {file.name for file in (tmp_path / "model").iterdir()} == {
        "config.json", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip


def test_layers_and_context_are_the_recipes(config_file):
    values = config_values(base(config=config_file, layers=3))
    assert (values["num_hidden_layers"], values["max_position_embeddings"]) == (3, 64)
    assert config_values(base(config="phi-2"))["num_hidden_layers"] == 32


def test_the_seed_says_the_weights_and_what_is_saved_has_no_seed(config_file, tiny_base, tmp_path):
    one, two = causal_lm(tiny_base, torch.float32), load_model(tiny_base, torch.float32)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name]), name
    assert one.model.layers[0].mlp.up_proj.weight.std().item() == pytest.approx(0.02, rel=0.1)
    made(base(config=config_file, seed=4), smoke_base_dir(), tmp_path)
    other = causal_lm(tmp_path / "model", torch.float32)
    assert not torch.equal(one.lm_head.weight, other.lm_head.weight)
    one.save_pretrained(tmp_path / "saved")
    loaded = load_model(tmp_path / "saved", torch.float32)
    assert torch.equal(loaded.lm_head.weight, one.lm_head.weight)
    assert "random_seed" not in (tmp_path / "saved" / "config.json").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 100}, "embeddings for 100; give another"),
        ({"num_attention_heads": 3}, "can be built from it .*hidden size .* is not a multiple"),
        ({"model_type": "no-such-model"}, "no causal language model can be built"),
    ],
)
def test_a_configuration_that_does_not_fit_is_told(change, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY | change))
    with pytest.raises(UserError, match=message):
        made(base(config=str(tmp_path / "config.json")), smoke_base_dir(), tmp_path)


def test_a_configuration_that_is_not_there_is_told(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for config in ("llama4", str(tmp_path / "config.json")):
        with pytest.raises(UserError, match=r"neither one of llama3-8b, llama3\.2-1b, phi-2 nor a config\.json"):
            config_values(base(config=config))


def test_it_is_extended_and_trained_as_any_other_base(tiny_base, tmp_path):
    extend(tiny_base, Extension(long_tokens=128, rope_theta=300_000.0), tmp_path)
    assert load_config(tmp_path / "model").rope_parameters["rope_theta"] == 300_000.0
    chunks = tmp_path / "chunks"
    chunks.mkdir()
    np.save(chunks / "tokens.npy", np.random.default_rng(0).integers(3, 400, (4, 128), dtype=np.uint32))
    request = TrainRequest(
        model_dir=tmp_path / "model",
        chunk_dir=chunks,
        stage=Train(
            training=Training(steps=2, sequences_per_step=2, learning_rate=1e-2, warmup_steps=0, precision="fp32"),
            weighting=Weighting(postprocessing="sparse", kappa=0.5),
            scorer=Scorer(kind="unfrozen", short_tokens=64, stride_tokens=48),
        ),
    )
    summary = train(request, tmp_path / "out", Execution(device="cpu"), no_progress)
    assert summary["first_nll"] == pytest.approx(np.log(4096), rel=0.02)  # it knows nothing yet
    drawn = causal_lm(tiny_base, torch.float32)
    trained = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "model")
    moved = trained.lm_head.weight - drawn.lm_head.weight
    assert 0 < moved.abs().max() < 0.1  # two steps away from the weights of the seed
    assert "random_seed" not in (tmp_path / "out" / "model" / "config.json").read_text()


@pytest.mark.slow
def test_under_zero_3_no_process_holds_more_than_a_module(tiny_base, tmp_path, monkeypatch):
    pytest.importorskip("deepspeed")
    script = Path(__file__).parent / "random_base_shares.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    done = subprocess.run(
        [*command, str(tiny_base), str(tmp_path / "report.pt")],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = torch.load(tmp_path / "report.pt")
    largest = TINY["vocab_size"] * TINY["hidden_size"]
    held = Held(monkeypatch.setattr)
    whole = causal_lm(tiny_base, torch.float32)
    assert held.most == whole.num_parameters() == report["whole"]  # without ZeRO-3 all are held: the count counts
    assert report["resident"] == 0
    assert report["share"] == report["whole"] // 2
    assert largest <= report["most"] < 1.1 * largest
    for name, parameter in whole.named_parameters():
        torch.testing.assert_close(report["weights"][name], parameter.detach(), rtol=0, atol=0, msg=name)
