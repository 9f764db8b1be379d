"""Checkpoints that are not what config.json says: one line, wherever they are loaded; none gives numbers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.integrations.deepspeed import (
    is_deepspeed_zero3_enabled,
    set_hf_deepspeed_config,
    unset_hf_deepspeed_config,
)

from tokenweight.assets import smoke_base_dir
from tokenweight.errors import UserError
from tokenweight.evaluation import model_spec
from tokenweight.evaluation.tokens import model_tokenizer
from tokenweight.training.fit import check_weights
from tokenweight.training.models import causal_lm, load_model

Weights = dict[str, torch.Tensor]
Command = Callable[..., tuple[int, str, str]]
Tally = Callable[[str, str, str], None]
HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"
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


def _sharded(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    save_file(without(DOWN)(weights), checkpoint / "model-00001-of-00002.safetensors", {"format": "pt"})
    files = dict.fromkeys(weights, "model-00001-of-00002.safetensors") | {DOWN: "model-00002-of-00002.safetensors"}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def _in_place_of_weights(name: str, content: bytes) -> Callable[[Path], object]:
    def damage(checkpoint: Path) -> None:
        (checkpoint / "model.safetensors").unlink()
        (checkpoint / name).write_bytes(content)

    return damage


def _cut(length: int) -> Callable[[Path], object]:
    data = (smoke_base_dir() / "model.safetensors").read_bytes()
    return _in_place_of_weights("model.safetensors", data[:length])


def configured(**changed: object) -> Callable[[Path], object]:
    return lambda checkpoint: edit(checkpoint / "config.json", **changed)


def changed(change: Callable[[Weights], Weights]) -> Callable[[Path], object]:
    return lambda checkpoint: reweight(checkpoint, change)


def written(name: str, content: str) -> Callable[[Path], object]:
    return lambda checkpoint: (checkpoint / name).write_text(content)


def _pickled(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Path("/")}, checkpoint / "pytorch_model.bin")


def _as_bin(change: Callable[[Weights], Weights]) -> Callable[[Path], object]:
    def damage(checkpoint: Path) -> None:
        torch.save(change(load_file(checkpoint / "model.safetensors")), checkpoint / "pytorch_model.bin")
        (checkpoint / "model.safetensors").unlink()

    return damage


def _adapter(checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()
    (checkpoint / "adapter_config.json").write_text("{}")


# What is wrong, by the words that must be in the line: files first, then tensors, configuration, tokenizer.
KINDS: dict[str, Callable[[Path], object]] = {
    f"1 of 20 tensors are not where model.safetensors.index.json says, first {DOWN}": _sharded,
    "index.json: lists no tensors": _in_place_of_weights("model.safetensors.index.json", b'{"weight_map": {}}'),
    "index.json: is not a JSON object": _in_place_of_weights("model.safetensors.index.json", b"{"),
    "model.safetensors: is damaged": _cut(-100),
    "safetensors: is damaged (Error while deserializing header": _cut(40),
    "deserializing header: header too small": _cut(0),
    "holds no weights": _in_place_of_weights("training_args.bin", b""),
    "pytorch_model.bin: cannot be loaded (UnpicklingError": _pickled,
    "pytorch_model.bin: cannot be loaded": _in_place_of_weights("pytorch_model.bin", b"PK"),
    "1 missing (first model.layers.0.mlp": _as_bin(without("model.layers.0.mlp.up_proj.weight")),
    "is an adapter; merge it": written("adapter_config.json", "{}"),
    "is an adapter: merge it": _adapter,
    f"1 missing (first {DOWN})": changed(without(DOWN)),
    "20 unexpected (first _orig_mod.": changed(lambda weights: {f"_orig_mod.{key}": weights[key] for key in weights}),
    f"1 mismatched (first ('{DOWN}'": changed(lambda weights: {**weights, DOWN: weights[DOWN][:, :7]}),
    "1 unexpected (first model.layers.0.self_attn.q_proj.bias)": changed(
        lambda weights: {**weights, "model.layers.0.self_attn.q_proj.bias": torch.zeros(128)}
    ),
    f"{DOWN} is int8: give": changed(lambda weights: {**weights, DOWN: weights[DOWN].to(torch.int8)}),
    f"{DOWN} is float8": changed(lambda weights: {**weights, DOWN: weights[DOWN].to(torch.float8_e4m3fn)}),
    "weights are quantised": configured(quantization_config={"bits": 4}),
    "9 unexpected": configured(num_hidden_layers=1),
    "9 missing": configured(num_hidden_layers=3),
    "1 missing (first lm_head.weight)": configured(tie_word_embeddings=False),
    "1 mismatched (first ('model.embed_tokens.weight'": configured(vocab_size=4100),
    "mismatched": configured(num_key_value_heads=1),
    "no model can be made from its config.json (": configured(pad_token_id=9999),
    "hidden_size": configured(hidden_size="wide"),
    "config.json: is not a JSON object": written("config.json", "["),
    "of model_type 'own'": configured(model_type="own"),
    "is not a causal language model (LlamaForSequenceClassification)": configured(
        architectures=["LlamaForSequenceClassification"]
    ),
    "up to number 4095, the model 4000 embeddings": configured(vocab_size=4000),
    "no tokenizer can be loaded": written("tokenizer.json", "{}"),
    "holds no tokenizer.json": lambda checkpoint: (checkpoint / "tokenizer.json").unlink(),
}
COMMANDS = {
    "plan": ("table-3/uniform@perplexity", "--base"),
    "reproduce": ("table-3/uniform@perplexity", "--base"),
    "evaluate": ("--benchmarks", "perplexity", "--scale", "smoke", "--model"),
    "score": ("texts", "--out", "weights", "--model"),
}


@pytest.mark.parametrize("message", KINDS)
def test_a_false_checkpoint_is_refused_before_any_work(
    checkpoint: Path, message: str, run_command: Command, tmp_path: Path, tally: Tally
) -> None:
    KINDS[message](checkpoint)
    (texts := tmp_path / "texts").mkdir()
    (texts / "a.txt").write_text("One day of many.")
    for command, arguments in COMMANDS.items():
        code, _, error = run_command(tmp_path, command, *arguments, str(checkpoint))
        assert (code, error.count("\n"), message in error) == (2, 1, True), f"{command}: {error}"
        tally("a false checkpoint", command, "refused")
    assert [file.name for file in tmp_path.rglob("*") if file.is_file() and checkpoint not in file.parents] == ["a.txt"]


@pytest.mark.parametrize("load", [causal_lm, load_model])
def test_where_a_model_is_loaded_it_is_looked_at_again(checkpoint: Path, load: Callable[..., object]) -> None:
    reweight(checkpoint, lambda weights: {**weights, DOWN: weights[DOWN] * float("nan")})
    check_weights(checkpoint, "X")
    with pytest.raises(UserError, match=r"down_proj\.weight is not finite"):
        load(checkpoint, torch.float32)
    reweight(checkpoint, lambda weights: {**weights, DOWN: torch.zeros(128, 256), HEAD: weights[TABLE] + 1})
    check_weights(checkpoint, "X")
    with pytest.raises(UserError, match=rf"ties {HEAD}, and the file holds another"):
        load(checkpoint, torch.float32)
    reweight(checkpoint, lambda weights: {**weights, HEAD: weights[TABLE]})
    load(checkpoint, torch.float32)
    reweight(checkpoint, without(DOWN))
    with pytest.raises(UserError, match="1 missing"):
        load(checkpoint, torch.float32)


def test_under_zero_3_names_are_compared_too(checkpoint: Path) -> None:
    """There each process loads its share, and what no file holds would be drawn at random."""
    sharding = type("Sharding", (), {"is_zero3": lambda self: True})()
    set_hf_deepspeed_config(sharding)
    try:
        check_weights(checkpoint, "X")
        reweight(checkpoint, without(DOWN))
        with pytest.raises(UserError, match=rf"1 missing \(first {DOWN}\)"):
            causal_lm(checkpoint, torch.float32)
        assert is_deepspeed_zero3_enabled()  # still
    finally:
        unset_hf_deepspeed_config()


def test_a_checkpoint_in_shards_or_of_older_files_is_one_too(checkpoint: Path) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    _sharded(checkpoint)
    save_file({DOWN: weights[DOWN].clone()}, checkpoint / "model-00002-of-00002.safetensors", {"format": "pt"})
    check_weights(checkpoint, "in shards")
    (checkpoint / "model.safetensors.index.json").unlink()
    torch.save(weights, checkpoint / "pytorch_model.bin")
    check_weights(checkpoint, "pickled, of tensors alone")


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


@pytest.mark.parametrize("kind", ["gpt2", "mixtral", "gpt_neox"])
def test_tensors_that_transformers_names_or_joins_otherwise_are_the_models(kind: str, tmp_path: Path) -> None:
    """Experts are a tensor each in files, and one in the model; GPT-2's file has no head of its own."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CONFIG_MAPPING[kind](vocab_size=64, num_key_value_heads=2, num_local_experts=2, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    check_weights(tmp_path, kind)


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
    with pytest.raises(UserError, match=r"--context 1025: config.json of .* says 1024 tokens; give at most that"):
        model_spec.find(str(checkpoint), context_tokens=1025)
