"""The backends that run models: `hf` in the core, others in optional rooms that are looked up here and nowhere else."""

from __future__ import annotations

from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.optional import optional_room
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.schema import Backend, Execution, Precision


def check_backend(backend: Backend) -> None:
    """UserError where the backend cannot run here, in one line, before anything is made."""
    if backend != "hf":
        optional_room(f"evaluation.{backend}", f"backend {backend}").check()


def load(
    backend: Backend, checkpoint_dir: Path, context_tokens: int, execution: Execution, precision: Precision = "fp32"
) -> LoadedModel:
    """The checkpoint by the backend, weights and activations in that precision.

    UserError: the backend cannot run here, or cannot run this checkpoint.
    """
    if backend == "hf":
        from tokenweight.evaluation.hf_model import HFModel

        return HFModel(checkpoint_dir, context_tokens, execution, precision)
    room = optional_room(f"evaluation.{backend}", f"backend {backend}")
    model: LoadedModel = room.load(checkpoint_dir, context_tokens, execution, precision)
    return model


def evaluation_execution(how: ModelOptions) -> Execution:
    """The scale's execution on the devices that are here.

    All visible GPUs work side by side, each with a process that loads the model once; `how.processes` is their number
    in place of that, and on a CPU. `how.tensor_parallel` is how many GPUs each process has. UserError: no GPU, or fewer
    than processes.
    """
    import torch

    processes, tensor_parallel = how.processes, how.tensor_parallel
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    wanted = how.device or ("cuda" if how.scale == "paper" else "auto")
    if wanted == "cuda" and not gpus:
        raise UserError("device cuda: torch sees no GPU; run where there is one, or give --device cpu")
    on_gpus = wanted != "cpu" and gpus > 0
    needed = (processes or 1) * tensor_parallel
    if (on_gpus or tensor_parallel > 1) and needed > gpus:
        asked = f"--processes {processes or 1} with --tensor-parallel {tensor_parallel}"
        raise UserError(f"{asked}: {needed} GPUs are needed, torch sees {gpus}; give fewer")
    return Execution(
        device=wanted,
        eval_batch_sequences=default_execution(how.scale).eval_batch_sequences,
        gpus=(processes or "all") if on_gpus else 1,
        slots=processes,
        tensor_parallel=tensor_parallel,
    )
