"""How each scale runs where nothing else is said, and whether an execution can be launched: never part of a fingerprint.

What needs the model or the data is checked by tokenweight.training.run.
"""

import shlex
import shutil
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from packaging.version import Version
from pydantic import ValidationError

from tokenweight.errors import UserError, choose
from tokenweight.recipes.recipe import assignments, of_scale, one_line, parse
from tokenweight.recipes.schema import Execution, Scale, Training

LEAST_DEEPSPEED = "0.19.2"  # before it, bf16 engines round the rotary frequencies


def default_execution(scale: Scale) -> Execution:
    """The execution of a scale: smoke inline on what is there, paper as in Appendix B."""
    return Execution.model_validate(of_scale(scale)["execution"])


def execution_for(scale: Scale, settings: Iterable[str] = (), *, here: bool = True, **given: Any) -> Execution:
    """The scale's execution with what the user gave in place; `settings`: key=value of any field.

    Raises UserError for an unknown field, for values that do not fit each other, and, unless `here` is False as for a
    plan, for packages and GPUs that are not there.
    """
    assigned = {key: parse(value) for key, value in assignments("--execution", settings).items()}
    if unknown := sorted(assigned.keys() - Execution.model_fields.keys()):
        raise UserError(f"--execution {unknown[0]}: no such field{choose(unknown[0], Execution.model_fields)}")
    changes = {**assigned, **{key: value for key, value in given.items() if value is not None}}
    try:
        execution = Execution.model_validate({**default_execution(scale).model_dump(), **changes})
    except ValidationError as error:
        raise UserError(f"execution.{one_line(error)}; correct it") from None
    check_launch(execution, here=here)
    if here:
        check_gpus(execution)
    return execution


def check_gpus(execution: Execution) -> None:
    """Raise UserError where device cuda is asked for, and torch sees too few."""
    if execution.device == "cuda":
        import torch

        seen = torch.cuda.device_count()
        if seen < execution.processes_per_node:
            raise UserError(
                f"device cuda: {execution.processes_per_node} GPUs are needed, torch sees {seen}; "
                "run where there are enough, or change --device and --processes"
            )


def check_launch(execution: Execution, *, here: bool = True) -> None:
    """Raise UserError where fields do not go together, or with `here` where this machine lacks what they need."""
    for field in ("nodes", "sequence_parallel"):
        count = getattr(execution, field)
        if execution.processes % count:
            raise UserError(
                f"execution.{field}: {count} does not divide execution.processes ({execution.processes}); change one"
            )
    if execution.launcher == "inline" and (execution.processes > 1 or execution.deepspeed_stage):
        raise UserError("execution.launcher: 'inline' is one process without DeepSpeed; set it to 'torchrun'")
    for field, none in (("deepspeed_stage", 0), ("checkpointing", "none"), ("fused", False)):
        if execution.compiled and getattr(execution, field) != none:
            raise UserError(f"execution.compiled: complete layers cannot be compiled with {field}; leave one out")
    if execution.offload_activations and execution.checkpointing == "none":
        raise UserError(
            "execution.offload_activations: it moves the layers' inputs that checkpointing keeps; "
            "set execution.checkpointing to 'full', 'keep_attention' or 'keep_projections'"
        )
    if execution.launcher != "srun" and execution.nodes > 1:
        raise UserError("execution.nodes: several nodes need launcher 'srun'; set execution.launcher to it")
    if execution.launcher != "srun" and execution.srun_options is not None:
        raise UserError("execution.srun_options: they apply only to launcher 'srun'; leave them out")
    try:
        shlex.split(execution.srun_options or "")
    except ValueError:
        raise UserError(f"execution.srun_options: {execution.srun_options!r} has an open quote; close it") from None
    for tracker in ("wandb", "trackio") if here else ():
        if tracker in execution.report_to and find_spec(tracker) is None:
            way = f"run `pip install {tracker}` or leave it out"
            raise UserError(f"execution.report_to: '{tracker}' is not installed; {way}")
    if here and execution.launcher == "srun" and shutil.which("srun") is None:
        raise UserError(
            "execution.launcher: srun is not installed here; run on a machine of the cluster, or choose another"
        )
    if here and execution.deepspeed_stage:
        way = f"pip install 'deepspeed>={LEAST_DEEPSPEED}'"
        try:
            found = metadata.version("deepspeed")
        except metadata.PackageNotFoundError:
            raise UserError(f"deepspeed: not installed, and a ZeRO stage needs it; {way}") from None
        if Version(found) < Version(LEAST_DEEPSPEED):
            raise UserError(f"deepspeed: {found} is installed, {LEAST_DEEPSPEED} or later is needed; {way}")


def check_batch(training: Training, execution: Execution, field: str = "training") -> None:
    """Raise UserError unless an optimizer step has the same whole number of passes in every process."""
    per_pass = execution.sequences_per_pass
    if training.sequences_per_step % per_pass:
        raise UserError(
            f"{field}.sequences_per_step: {training.sequences_per_step} is not a multiple of processes times "
            f"micro_batch_sequences{' over sequence_parallel' if execution.sequence_parallel > 1 else ''} ({per_pass}); "
            "change one of them, e.g. by --execution micro_batch_sequences=1"
        )
