"""Run by test_saving under torch.distributed.run: trains by ZeRO-3 and notes what its validation says of damaged copies."""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from training_calls import TrainRequest

from tokenweight.errors import StageError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution
from tokenweight.training import models
from tokenweight.training.run import fit

validate = models.validate_checkpoint
NORM = "model.layers.0.input_layernorm.weight"


def changed_weight(tensors, config):
    tensors[NORM] = tensors[NORM] * 1.5


def not_finite(tensors, config):
    tensors[NORM][3] = float("nan")


def empty(tensors, config):
    tensors[NORM] = torch.empty(0)


def missing(tensors, config):
    del tensors[NORM]


def old_rope(tensors, config):
    config["rope_parameters"]["rope_theta"] = 10_000.0


def try_damages(checkpoint, dtype, probe, expected_logits):
    """What validation says of each damaged copy, and the trainer's logits; then the true checkpoint is validated."""
    said = {}
    for damage in (changed_weight, not_finite, empty, missing, old_rope):
        copy = Path(shutil.copytree(checkpoint, out_dir / "damaged"))
        tensors, config = load_file(copy / "model.safetensors"), json.loads((copy / "config.json").read_text())
        damage(tensors, config)
        save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
        (copy / "config.json").write_text(json.dumps(config))
        try:
            validate(copy, dtype, probe, expected_logits)
            said[damage.__name__] = None
        except StageError as error:
            said[damage.__name__] = str(error)
        shutil.rmtree(copy)
    torch.save({"said": said, "probe": probe, "logits": expected_logits}, out_dir / "seen.pt")
    validate(checkpoint, dtype, probe, expected_logits)


if __name__ == "__main__":
    request, out_dir = TrainRequest.model_validate_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    models.validate_checkpoint = try_damages
    execution = Execution(launcher="torchrun", processes=2, device="cpu", deepspeed_stage=3)
    fit(request.stage, request.inputs, out_dir, execution, None, no_progress)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
