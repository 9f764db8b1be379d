"""On a machine with GPUs: two runs compute on different ones, and what a killed run held is free."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tokenweight.tasks import gpus

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")

# The choice first, CUDA afterwards, as a run does it; then it holds its GPU until it is killed.
SCRIPT = """
import json, sys, time
from tokenweight.tasks.gpus import held_gpus
from tokenweight.recipes.schema import Execution
say = lambda **message: print(json.dumps(message), flush=True)
with held_gpus(Execution(device="cuda"), {"train"}, lambda text: say(note=text)) as chosen:
    import os
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
    import torch
    product = torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
    assert product.sum().item() == 64.0**3
    say(chosen=chosen, seen=torch.cuda.device_count(), device=str(torch.cuda.get_device_properties(0).uuid))
    time.sleep(600)
"""


def test_two_runs_compute_on_different_gpus_and_the_next_takes_that_of_a_killed_one(tmp_path: Path) -> None:
    environment = {**os.environ, gpus.LOCKS: str(tmp_path), gpus.VISIBLE: "0,1"}

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, text=True)

    def says(run: "subprocess.Popen[str]") -> dict[str, object]:
        assert run.stdout is not None
        message: dict[str, object] = json.loads(run.stdout.readline())
        return message

    runs = [start(), start()]
    try:
        first, second = (says(run) for run in runs)
        assert first["seen"] == second["seen"] == 1
        assert first["device"] != second["device"]
        runs.append(start())
        assert "waiting for 1 of 2 GPUs: 0 free" in str(says(runs[2])["note"])
        runs[0].send_signal(signal.SIGKILL)
        third = says(runs[2])
        assert (third["chosen"], third["device"]) == (first["chosen"], first["device"])
    finally:
        for run in runs:
            run.kill()
            run.wait()
