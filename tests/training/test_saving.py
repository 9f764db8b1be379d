"""The finished model of a ZeRO-3 run: anyone can load it, it is the trainer's, and a damaged one is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_calls import train
from transformers import AutoModelForCausalLM, AutoTokenizer

from tokenweight.context.rope import assert_rope
from tokenweight.progress import no_progress


@pytest.mark.slow
def test_a_model_saved_under_zero_3(make_request, unfrozen, tmp_path):
    pytest.importorskip("deepspeed")
    (tmp_path / "request.json").write_text(make_request(steps=2).model_dump_json(by_alias=True))
    out = tmp_path / "out"
    out.mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    script = Path(__file__).with_name("saving_steps.py")
    done = subprocess.run(
        [*launcher, str(script), str(tmp_path / "request.json"), str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]

    seen = torch.load(out / "seen.pt")
    model = AutoModelForCausalLM.from_pretrained(out / "model").eval()
    assert model.config.rope_parameters["rope_theta"] == 300_000.0
    assert model.config.max_position_embeddings == 64
    assert_rope(model, model.config)
    with torch.no_grad():
        logits = model(input_ids=seen["probe"]).logits[0]
    torch.testing.assert_close(logits, seen["logits"], rtol=1e-4, atol=1e-4)
    assert len(AutoTokenizer.from_pretrained(out / "model")) == 64

    said = seen["said"]
    assert "differ from the trainer's" in said["changed_weight"]
    assert "differ from the trainer's" in said["old_rope"]
    assert "is not finite" in said["not_finite"]
    assert "1 mismatched" in said["empty"]
    assert "1 missing" in said["missing"]


def test_tied_weights_are_in_the_file_once(make_request, unfrozen, inline, tmp_path):
    """Cast from fp32 to bf16, or gathered by ZeRO, they no longer share their memory."""
    train(make_request(steps=1, scorer=unfrozen, precision="bf16"), tmp_path, inline, no_progress)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "model").config.tie_word_embeddings
    assert "lm_head.weight" not in load_file(tmp_path / "model" / "model.safetensors")
