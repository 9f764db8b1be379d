"""DeepSpeed as a recipe and an execution imply it (Appendix B: ZeRO level 3): its configuration, a check of it, a start on CPUs."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from tokenweight.errors import UserError
from tokenweight.recipes.recipe import one_line
from tokenweight.recipes.schema import Execution, Training

# Elements that travel together: a layer of an 8B model has 2.2e8. The defaults (5e7 to fetch ahead) leave links idle.
_LARGE_BUCKETS = {"reduce_bucket_size": 5e8, "stage3_prefetch_bucket_size": 5e8}


def deepspeed_config(training: Training, execution: Execution) -> dict[str, Any]:
    """Configuration for `execution.deepspeed_stage`, without any "auto".

    bf16 parameters with fp32 master weights, gradients accumulated in fp32 (the default would be bf16), and
    DeepSpeed's AdamW over all parameters, so that weight decay also acts on norms, as in the paper's setup.
    """
    on_gpu = execution.device != "cpu"
    accumulation = training.sequences_per_step // execution.sequences_per_pass
    return {
        # DeepSpeed counts a sequence once for each process that holds a part of it.
        "train_batch_size": training.sequences_per_step * execution.sequence_parallel,
        "train_micro_batch_size_per_gpu": execution.micro_batch_sequences,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": training.gradient_clip,
        "bf16": {"enabled": training.precision == "bf16"},
        "data_types": {"grad_accum_dtype": "fp32"},
        "optimizer": {
            "type": "AdamW",
            "params": {
                "lr": training.learning_rate,
                "betas": [training.beta1, training.beta2],
                "eps": training.epsilon,
                "weight_decay": training.weight_decay,
                "torch_adam": True,
            },
        },
        "zero_optimization": {
            "stage": execution.deepspeed_stage,
            "overlap_comm": on_gpu,
            "contiguous_gradients": True,
            "stage3_gather_16bit_weights_on_model_save": True,
            **(_LARGE_BUCKETS if on_gpu else {}),
        },
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 10**9,
    }


def check_deepspeed(training: Training, execution: Execution) -> None:
    """Show the configuration to DeepSpeed's own classes, where a stage of ZeRO is asked for.

    Raises UserError for what DeepSpeed would refuse once all processes had loaded the model, or if it cannot be imported.
    """
    if not execution.deepspeed_stage:
        return
    config = deepspeed_config(training, execution)
    try:
        from deepspeed.runtime.config import DeepSpeedConfig
    except ImportError as error:
        raise UserError(f"deepspeed: installed, but cannot be imported ({error}); install it again") from error
    # DeepSpeed counts the processes that run: this one.
    of_one_process = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
    try:
        DeepSpeedConfig({**config, "train_batch_size": of_one_process})
    except (AssertionError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = one_line(error) if isinstance(error, ValidationError) else error
        raise UserError(f"deepspeed: refuses its configuration ({reason}); change the execution's settings") from error


def start_deepspeed_on_cpu() -> None:
    """Start DeepSpeed over gloo and tell accelerate, which by itself takes it up on accelerators only."""
    import deepspeed
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState(cpu=True, backend="gloo").distributed_type = DistributedType.DEEPSPEED
