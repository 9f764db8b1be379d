"""On which devices, and in how many processes, a model is evaluated."""

from __future__ import annotations

from tokenweight.errors import UserError
from tokenweight.recipes.execution import default_execution
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.schema import Execution


def evaluation_execution(how: ModelOptions) -> Execution:
    """The scale's execution on the devices that are here.

    All visible GPUs work side by side, each with a process that loads the model once; `how.processes` is their number in
    place of that, and on a CPU. `how.tensor_parallel` is how many GPUs each process has.

    Raises:
        UserError: no GPU, or fewer than processes.
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
