"""One process of test_random_base: build a random base under ZeRO-3 and say what was held, and the whole weights.

torchrun random_base_shares.py MODEL_DIR OUT.pt
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from tokenweight.recipes.schema import Execution, Training
from tokenweight.training.models import load_model
from tokenweight.training.run import training_arguments
from tokenweight.training.stages import Train


class Held:
    """The most elements of whole parameters that a process holds at a time while it builds a model."""

    def __init__(self, monkeypatch: Any = setattr) -> None:
        self.parameters: list[nn.Parameter] = []
        self.most = 0
        registered, initialized = nn.Module.register_parameter, PreTrainedModel._initialize_weights

        def register(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
            if parameter is not None and not any(parameter is known for known in self.parameters):
                self.parameters.append(parameter)
            self.count()
            registered(module, name, parameter)

        def initialize(model: PreTrainedModel, module: nn.Module, *args: Any) -> None:
            self.count()  # gathered for this module
            initialized(model, module, *args)

        monkeypatch(nn.Module, "register_parameter", register)
        monkeypatch(PreTrainedModel, "_initialize_weights", initialize)

    def count(self) -> None:
        """Partitioned parameters are empty."""
        self.most = max(self.most, sum(parameter.numel() for parameter in self.parameters))


def main(model_dir: Path, out: Path) -> None:
    """Build, gather one parameter after the other to compare, and save on the first process."""
    import deepspeed

    execution = Execution(launcher="torchrun", processes=2, device="cpu", deepspeed_stage=3)
    training = Training(steps=1, sequences_per_step=2, learning_rate=1e-3, warmup_steps=0, precision="fp32")
    arguments = training_arguments(Train(training=training), out.with_suffix(".work"), execution)
    held = Held()
    model = load_model(model_dir, torch.float32, check_rope=False)
    parameters = dict(model.named_parameters())
    report = {
        "most": held.most,
        "whole": sum(p.ds_numel for p in parameters.values()),
        "share": sum(p.ds_tensor.numel() for p in parameters.values()),
        "resident": sum(p.numel() for p in parameters.values()),
        "weights": {},
    }
    for name, parameter in parameters.items():
        with deepspeed.zero.GatheredParameters(parameter):
            report["weights"][name] = parameter.detach().clone()
    if arguments.process_index == 0:
        torch.save(report, out)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
