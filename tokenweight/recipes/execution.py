"""How each scale runs where nothing else is said. Never part of a fingerprint."""

from typing import Any

from tokenweight.errors import UserError
from tokenweight.recipes.schema import Execution, Scale

_DEFAULTS: dict[Scale, Execution] = {
    "smoke": Execution(micro_batch_sequences=2, eval_batch_sequences=16, save_every_steps=8),
    "mini": Execution(micro_batch_sequences=16, eval_batch_sequences=32, save_every_steps=50),
    # Appendix B: 8 A100-80GB, DeepSpeed level 3, one sequence a GPU
    "paper": Execution(
        launcher="torchrun",
        processes=8,
        device="cuda",
        micro_batch_sequences=1,
        eval_batch_sequences=1,
        save_every_steps=20,
        deepspeed_stage=3,
        checkpointing="keep_projections",
        fused=True,
        isolate_evaluation=True,
    ),
}


def default_execution(scale: Scale) -> Execution:
    """The execution of a scale: smoke inline on what is there, paper as in Appendix B."""
    return _DEFAULTS[scale]


def execution_for(scale: Scale, **given: Any) -> Execution:
    """The scale's execution with what the user gave in place; UserError for GPUs that are not there."""
    changes = {key: value for key, value in given.items() if value is not None}
    execution = default_execution(scale).model_copy(update=changes)
    if execution.device == "cuda":
        import torch

        seen = torch.cuda.device_count()
        if seen < execution.processes:
            raise UserError(
                f"device cuda: {execution.processes} GPUs are needed, torch sees {seen}; "
                "run where they are, or give --device and --processes"
            )
    return execution
