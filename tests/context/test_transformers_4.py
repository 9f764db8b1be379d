"""Checkpoints travel: transformers 4 computes with them what version 5 does."""

import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM

from tokenweight.context.extend import extend
from tokenweight.recipes.schema import Extension

SMALL = {
    "vocab_size": 30, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 128,
}  # fmt: skip
PARTIAL = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.4}
SCALED = {
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
    "yarn": {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128},
}
BASES = {
    **{name: LlamaForCausalLM(LlamaConfig(**SMALL, rope_parameters=rope)) for name, rope in SCALED.items()},
    "llama": LlamaForCausalLM(LlamaConfig(**SMALL)),
    "phi": PhiForCausalLM(PhiConfig(**SMALL, rope_parameters=PARTIAL)),
}
EXTENSIONS = {
    "llama-abf": Extension(long_tokens=512, rope_theta=306_000.0),
    "phi-abf": Extension(long_tokens=512, rope_theta=500_000.0),
    "linear-abf": Extension(long_tokens=512, rope_theta=306_000.0),
    "yarn-abf": Extension(long_tokens=512, rope_theta=306_000.0),
}
IDS = torch.arange(300)[None] % 30
VERSION_4 = ("transformers==4.57.6", "tokenizers==0.22.2", "huggingface_hub==0.36.2")
LOGITS = """
import sys, torch, transformers
assert transformers.__version__.startswith("4."), transformers.__version__
for folder in sys.argv[1:]:
    with torch.no_grad():
        logits = transformers.AutoModelForCausalLM.from_pretrained(folder)(torch.arange(300)[None] % 30).logits
    torch.save(logits, folder + "/logits.pt")
"""


@pytest.fixture(params=EXTENSIONS)
def extended(request, tmp_path):
    BASES[request.param.partition("-")[0]].save_pretrained(tmp_path / "base")
    extend(tmp_path / "base", EXTENSIONS[request.param], tmp_path)
    return tmp_path / "model"


def test_rope_is_at_the_top_level_too_and_reads_as_before(extended):
    written = json.loads((extended / "config.json").read_text())
    rope = AutoConfig.from_pretrained(extended).rope_parameters
    assert rope == written["rope_parameters"]
    assert written["rope_theta"] == rope["rope_theta"]
    assert written.get("partial_rotary_factor") == rope.get("partial_rotary_factor")
    kind = written["rope_scaling"] and written["rope_scaling"]["rope_type"]
    assert kind == (None if rope["rope_type"] == "default" else rope["rope_type"])


def test_another_extension_leaves_nothing_of_the_first(tmp_path):
    BASES["llama"].save_pretrained(tmp_path / "base")
    extend(tmp_path / "base", Extension(long_tokens=256, rope_theta=50_000.0), tmp_path / "first")
    extend(tmp_path / "first" / "model", Extension(long_tokens=512, rope_theta=200_000.0), tmp_path / "second")
    written = json.loads((tmp_path / "second" / "model" / "config.json").read_text())
    assert written["rope_theta"] == written["rope_parameters"]["rope_theta"] == 200_000.0


@pytest.mark.slow
def test_transformers_4_gives_the_same_logits(tmp_path):
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "four")]
    subprocess.run([*install, *VERSION_4], check=True)
    folders = []
    for name, extension in EXTENSIONS.items():
        BASES[name.partition("-")[0]].save_pretrained(tmp_path / name / "base")
        extend(tmp_path / name / "base", extension, tmp_path / name)
        folders.append(str(tmp_path / name / "model"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "four")}
    subprocess.run([sys.executable, "-c", LOGITS, *folders], check=True, env=environment)
    for folder in folders:
        with torch.no_grad():
            expected = AutoModelForCausalLM.from_pretrained(folder)(IDS).logits
        torch.testing.assert_close(torch.load(f"{folder}/logits.pt"), expected, rtol=1e-4, atol=1e-5)
