"""The DeepSpeed configuration that a recipe and an execution imply (Appendix B: ZeRO level 3)."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from tokenweight.errors import UserError
from tokenweight.recipes.execution import check_deepspeed_version
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


def check_deepspeed(training: Training, execution: Execution) -> dict[str, Any] | None:
    """The configuration that a run will use, seen by DeepSpeed's own classes; None without DeepSpeed.

    Raises UserError for what DeepSpeed would refuse once all processes had loaded the model.
    """
    if not execution.deepspeed_stage:
        return None
    check_deepspeed_version()
    config = deepspeed_config(training, execution)
    validate_deepspeed_config(config, execution.processes)
    return config


def validate_deepspeed_config(config: dict[str, Any], processes: int) -> None:
    """Raise UserError unless batch sizes agree for `processes` and DeepSpeed's classes take every value."""
    batch, micro = config["train_batch_size"], config["train_micro_batch_size_per_gpu"]
    accumulation = config["gradient_accumulation_steps"]
    if batch != micro * accumulation * processes:
        raise UserError(
            f"deepspeed: train_batch_size {batch} is not {micro} (micro-batch) x {accumulation} (accumulation) x "
            f"{processes} (processes); change training.sequences_per_step, execution.micro_batch_sequences or processes"
        )
    try:
        from deepspeed.runtime.config import DeepSpeedConfig
    except ImportError as error:
        raise UserError(f"deepspeed: installed, but cannot be imported ({error}); install it again") from error
    of_one_process = {**config, "train_batch_size": micro * accumulation}  # DeepSpeed counts processes that run
    try:
        DeepSpeedConfig(of_one_process)
    except (AssertionError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = one_line(error) if isinstance(error, ValidationError) else error
        raise UserError(f"deepspeed: refuses its configuration ({reason}); change the execution's settings") from error
