"""Checkpoints that are not what config.json says: one line, wherever they are loaded; none gives numbers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tokenweight.assets import smoke_base_dir
from tokenweight.context.checkpoint_files import check_weights
from tokenweight.errors import UserError
from tokenweight.evaluation import model_spec
from tokenweight.evaluation.tokens import model_tokenizer
from tokenweight.training.models import causal_lm, load_model

Weights = dict[str, torch.Tensor]
DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(smoke_base_dir(), folder)
    return folder


def edit(file: Path, **changed: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def reweight(checkpoint: Path, change: Callable[[Weights], Weights]) -> None:
    file = checkpoint / "model.safetensors"
    weights = change(load_file(file))
    file.unlink()  # the shipped one may be linked
    save_file({name: tensor.clone() for name, tensor in weights.items()}, file, {"format": "pt"})


def without(name: str) -> Callable[[Weights], Weights]:
    return lambda weights: {key: value for key, value in weights.items() if key != name}


CHANGED = {
    "1 missing (first model.layers.1.mlp.down_proj.weight)": without(DOWN),
    "20 unexpected (first _orig_mod.": lambda weights: {f"_orig_mod.{key}": value for key, value in weights.items()},
    "1 mismatched (first ('model.layers.1.mlp.down_proj.weight'": lambda weights: {
        **weights,
        DOWN: weights[DOWN][:, :7],
    },
    "down_proj.weight is not finite": lambda weights: {**weights, DOWN: weights[DOWN] * float("nan")},
}


@pytest.mark.parametrize("message", CHANGED)
@pytest.mark.parametrize("load", [causal_lm, load_model])
def test_weights_that_are_not_the_models_are_refused(
    checkpoint: Path, message: str, load: Callable[..., object]
) -> None:
    reweight(checkpoint, CHANGED[message])
    with pytest.raises(UserError) as raised:
        load(checkpoint, torch.float32)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_configuration_of_fewer_layers_is_refused(checkpoint: Path) -> None:
    edit(checkpoint / "config.json", num_hidden_layers=1)
    with pytest.raises(UserError, match="9 unexpected"):
        causal_lm(checkpoint, torch.float32)


def test_a_head_that_is_not_tied_must_be_there(checkpoint: Path) -> None:
    edit(checkpoint / "config.json", tie_word_embeddings=False)
    with pytest.raises(UserError, match=r"1 missing \(first lm_head.weight\)"):
        causal_lm(checkpoint, torch.float32)


def _sharded(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    save_file(without(DOWN)(weights), checkpoint / "model-00001-of-00002.safetensors", {"format": "pt"})
    files = dict.fromkeys(weights, "model-00001-of-00002.safetensors") | {DOWN: "model-00002-of-00002.safetensors"}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def _cut(checkpoint: Path) -> None:
    data = (checkpoint / "model.safetensors").read_bytes()
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "model.safetensors").write_bytes(data[:-100])


DAMAGED: dict[str, Callable[[Path], object]] = {
    f"1 of 20 tensors are not where model.safetensors.index.json says, first {DOWN}": _sharded,
    "model.safetensors: is damaged": _cut,
    f"{DOWN} is I8: give the checkpoint of full precision": lambda checkpoint: reweight(
        checkpoint, lambda weights: {**weights, DOWN: weights[DOWN].to(torch.int8)}
    ),
    "weights are quantised": lambda checkpoint: edit(checkpoint / "config.json", quantization_config={"bits": 4}),
    "is an adapter; merge it": lambda checkpoint: (checkpoint / "adapter_config.json").write_text("{}"),
}


@pytest.mark.parametrize("message", DAMAGED)
def test_files_are_judged_by_their_headers_before_any_work(checkpoint: Path, message: str) -> None:
    DAMAGED[message](checkpoint)
    for looks in (lambda: model_spec.find(str(checkpoint)), lambda: check_weights(checkpoint, "base X")):
        with pytest.raises(UserError) as raised:
            looks()
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)


def test_a_plan_judges_them_too(
    checkpoint: Path, run_command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    _cut(checkpoint)
    code, _, error = run_command(tmp_path, "plan", "table-3", "--base", str(checkpoint))
    assert (code, error.count("\n"), "model.safetensors: is damaged" in error) == (2, 1, True)


def test_what_a_trainer_leaves_beside_is_no_weights(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    torch.save({"lr": 1}, checkpoint / "training_args.bin")
    with pytest.raises(UserError, match="holds no weights"):
        model_spec.find(str(checkpoint))


def test_a_tokenizer_that_ends_every_text_is_refused(checkpoint: Path) -> None:
    """A prompt that has ended is not answered: RULER fell from 45.26 to 21.22 without a word."""
    content = json.loads((checkpoint / "tokenizer.json").read_text())
    eos = json.loads((checkpoint / "config.json").read_text())["eos_token_id"]
    name = next(token["content"] for token in content["added_tokens"] if token["id"] == eos)
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": name, "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [eos], "tokens": [name]}},
    }
    (checkpoint / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="ends every text with"):
        model_spec.find(str(checkpoint))


def test_a_tokenizer_larger_than_the_embedding_is_refused_with_both_sizes(checkpoint: Path) -> None:
    edit(checkpoint / "config.json", vocab_size=4000)
    with pytest.raises(UserError, match=r"up to number 4095, the model 4000 embeddings"):
        model_spec.find(str(checkpoint))


def _add_token(checkpoint: Path, content: str, id: int) -> None:
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": id, "content": content})
    (checkpoint / "tokenizer.json").write_text(json.dumps(tokenizer))


def test_a_special_token_that_no_text_has_may_lie_beyond_the_embedding(checkpoint: Path) -> None:
    """As the image token of Gemma 3's text models does; one that ends texts may not."""
    _add_token(checkpoint, "<image>", 4096)
    model_tokenizer(checkpoint)
    edit(checkpoint / "tokenizer_config.json", eos_token="<image>")
    with pytest.raises(UserError, match="up to number 4096, the model 4096 embeddings"):
        model_tokenizer(checkpoint)


def test_a_padding_token_may_have_any_id(checkpoint: Path) -> None:
    _add_token(checkpoint, "[PAD]", 4096)
    edit(checkpoint / "tokenizer_config.json", pad_token="[PAD]")
    tokenizer = model_tokenizer(checkpoint)
    assert tokenizer.pad_token_id == tokenizer.eos_token_id


@pytest.mark.parametrize("scaling", [{"type": "linear", "factor": 4.0}, {"rope_type": "dynamic", "factor": 4.0}])
def test_positions_that_are_scaled_need_the_context_said(checkpoint: Path, scaling: dict[str, object]) -> None:
    edit(checkpoint / "config.json", rope_parameters=None, rope_theta=1e4, rope_scaling=scaling)
    edit(checkpoint / "config.json", max_position_embeddings=256)
    with pytest.raises(UserError, match=r"rope_scaling .* by 4.*--context 256 or 1024$"):
        model_spec.find(str(checkpoint))
    assert model_spec.find(str(checkpoint), context_tokens=1024).base.context_tokens == 1024
