"""The backends that run models: `hf` in the core, others in optional rooms that are looked up here and nowhere else."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.errors import UserError
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.schema import Backend, Execution, Precision

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel


def check_backend(backend: Backend) -> None:
    """UserError where the backend cannot run here, in one line, before anything is made."""
    if backend != "hf":
        _room(backend, "check").check()


def load(
    backend: Backend, checkpoint_dir: Path, context_tokens: int, execution: Execution, precision: Precision = "fp32"
) -> LoadedModel:
    """The checkpoint by the backend, weights and activations in that precision.

    UserError: the backend cannot run here, or cannot run this checkpoint.
    """
    if backend == "hf":
        from tokenweight.evaluation.hf_model import HFModel

        return HFModel(checkpoint_dir, context_tokens, execution, precision)
    model: LoadedModel = _room(backend, "model").load(checkpoint_dir, context_tokens, execution, precision)
    return model


def _room(backend: Backend, module: str) -> Any:
    try:
        return import_module(f"tokenweight.evaluation.{backend}.{module}")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(f"tokenweight.evaluation.{backend}"):
            raise
        raise UserError(f"backend {backend}: this installation leaves it out; use hf") from None


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
    if tensor_parallel > 1 and needed > gpus:
        raise UserError(f"--tensor-parallel {tensor_parallel}: {needed} GPUs are needed, torch sees {gpus}; give fewer")
    if on_gpus and needed > gpus:
        raise UserError(f"--processes {processes}: torch sees {gpus} GPUs, and each process needs one; give fewer")
    return Execution(
        device=wanted,
        eval_batch_sequences=default_execution(how.scale).eval_batch_sequences,
        gpus=(processes or "all") if on_gpus else 1,
        slots=processes,
        tensor_parallel=tensor_parallel,
    )
