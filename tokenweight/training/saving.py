"""The trained checkpoint: written, read back, and compared with the trainer before anyone may use it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from tokenweight.context.checkpoint_files import copy_companions, save_config
from tokenweight.context.rope import assert_rope
from tokenweight.errors import StageError
from tokenweight.training.quiet import quiet_transformers

LOGITS_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # rms of the difference over rms of the logits


def save_checkpoint(trainer: Any, source_dir: Path, final: Path, dtype: torch.dtype, probe: Tensor) -> None:
    """Save the trainer's model as `final` (weights in `dtype`, configuration, tokenizer) once it is validated.

    All processes call this; the first writes. `probe`: token ids int64 [1, T] on which the saved model's logits
    must equal the trainer's. Raises StageError where the saved checkpoint is not right.
    """
    expected_logits = _probe_logits(trainer.model, probe.to(trainer.args.device))
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if trainer.is_world_process_zero():
        partial = final.with_name(f"{final.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        model = trainer.accelerator.unwrap_model(trainer.model)
        tied = model.all_tied_weights_keys  # copies by now, of what the file has under another name
        weights = {name: value.to(dtype) for name, value in state.items() if name not in tied}
        with quiet_transformers():
            model.save_pretrained(partial, state_dict=weights)
        model.config.dtype = dtype  # of the file; save_pretrained notes that of the parameters in memory
        save_config(model.config, partial)
        copy_companions(source_dir, partial)
        validate_checkpoint(partial, dtype, probe, expected_logits)
        os.replace(partial, final)
    trainer.accelerator.wait_for_everyone()


def validate_checkpoint(checkpoint: Path, dtype: torch.dtype, probe: Tensor, expected_logits: Tensor) -> None:
    """Raise StageError unless a checkpoint is complete, finite, has its RoPE and gives `expected_logits` [T, V].

    Read as anyone would read it: plain transformers, on the CPU, in this process alone.
    """
    from transformers import AutoModelForCausalLM
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    unset_hf_deepspeed_config()  # or ZeRO-3 would wait for the other processes to load their share
    for file in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                tensor = tensors.get_tensor(name)
                if tensor.numel() == 0 or not bool(tensor.isfinite().all()):
                    raise StageError(f"{file.name}: tensor {name} is empty or not finite; the checkpoint is unusable")
    with quiet_transformers():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    model, report = loaded
    wrong = [name for key in ("missing_keys", "unexpected_keys", "mismatched_keys") for name in report[key]]
    if wrong:
        raise StageError(f"{checkpoint.name}: {len(wrong)} tensors do not fit the model, first {wrong[0]}")
    assert_rope(model, model.config)
    difference = (_probe_logits(model, probe) - expected_logits).square().mean().sqrt()
    if not difference <= LOGITS_TOLERANCE[dtype] * expected_logits.square().mean().sqrt():
        raise StageError(f"{checkpoint.name}: its logits differ from the trainer's by {difference:.2e} (rms)")


@torch.no_grad()
def _probe_logits(model: Any, probe: Tensor) -> Tensor:
    was_training = model.training
    model.eval()
    logits: Tensor = model(input_ids=probe, use_cache=False).logits[0].float().cpu()
    model.train(was_training)
    return logits
