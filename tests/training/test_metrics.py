"""A step's numbers against hand-computed ones, what a run leaves of them, and how one bad rank ends all."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.flop_counter import FlopCounterMode
from training_calls import train
from transformers import AutoModelForCausalLM, LlamaConfig, PhiConfig
from transformers.utils import logging as transformers_logging

from tokenweight.errors import UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Weighting
from tokenweight.training.flops import peak_flops, train_flops
from tokenweight.training.metrics import StepMetrics, StepReports, describe, eta_seconds, read_metrics

CPU = torch.device("cpu")
NLL = torch.tensor([[1.0, 2.0, 3.0, 6.0]])
WEIGHTS = torch.tensor([[0.0, 2.0, 2.0, 0.0]])


class Clock:
    """perf_counter that says 10, 12, 14 ..."""

    def __init__(self):
        self.now = 8.0

    def perf_counter(self):
        self.now += 2.0
        return self.now


def test_one_step_by_hand(monkeypatch):
    monkeypatch.setattr("tokenweight.training.metrics.time", Clock())
    metrics = StepMetrics(CPU, sequence_flops=300.0, peak_flops=1000.0)
    metrics.add(NLL, WEIGHTS)
    metrics.add(NLL + 1, torch.ones(1, 4))
    row = metrics.finish()
    assert row["nll"] == (12 + 16) / 8
    assert row["weighted_nll"] == (10 + 16) / 8
    assert row["weight_std"] == pytest.approx((12 / 8 - 1) ** 0.5)
    assert row["zero_weight_share"] == 2 / 8
    assert row["predictions"] == 8
    assert row["seconds"] == 2.0
    assert row["tokens_per_second"] == 10 / 2  # two sequences of five tokens
    assert row["mfu"] == 300 * 2 / 2 / 1000
    assert row["peak_memory_bytes"] > 1e6


def test_sums_begin_anew_with_each_step():
    metrics = StepMetrics(CPU)
    metrics.add(NLL, WEIGHTS)
    metrics.finish()
    metrics.add(NLL, torch.ones(1, 4))
    row = metrics.finish()
    assert (row["weighted_nll"], row["predictions"], row["mfu"]) == (3.0, 4, None)


def test_eta_is_the_median_of_the_steps_after_the_first():
    assert eta_seconds([100.0], 9) is None
    assert eta_seconds([100.0, 2.0], 8) == 16.0
    assert eta_seconds([100.0, 2.0, 4.0, 50.0], 6) == 24.0
    assert eta_seconds([100.0, *[90.0] * 11, *[4.0] * 10, *[2.0] * 10], 1) == 3.0, "of the last twenty"


def test_steps_are_read_up_to_the_first_that_was_not_written_to_its_end(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert read_metrics(file) == []
    file.write_text('{"step": 1}\n{"step": 2}\n{"st\n{"step": 4}\n')
    assert read_metrics(file) == [{"step": 1}, {"step": 2}]
    said = []
    reports = StepReports(tmp_path, (), 9, lambda *given: said.append(given[:2]), done_steps=1)
    assert read_metrics(file) == [{"step": 1}]
    tracked = []
    tracker = SimpleNamespace(log=lambda row, step: tracked.append((step, row.keys() & {"step", "mfu", "nll"})))
    reports.trackers = [tracker]
    numbers = dict.fromkeys(
        ("nll", "weighted_nll", "weight_std", "zero_weight_share", "grad_norm", "learning_rate"), 1.0
    )
    for step in (2, 3):
        reports.add(
            {"step": step, "seconds": 2.0, "tokens_per_second": 1.0, "mfu": None, "peak_memory_bytes": 1, **numbers}
        )
    assert [(row["step"], row.get("eta_seconds")) for row in read_metrics(file)] == [(1, None), (2, None), (3, 12.0)]
    assert said == [(2, 9), (3, 9)]
    assert tracked == [(2, {"nll"}), (3, {"nll"})], "numbers alone"


def test_a_step_in_one_line():
    row = {
        "nll": 1.23456, "weighted_nll": 2.0, "weight_std": 0.125, "zero_weight_share": 0.25, "grad_norm": 0.5,
        "learning_rate": 2e-5, "tokens_per_second": 12345.6, "mfu": 0.25, "peak_memory_bytes": 3 * 2**29,
        "eta_seconds": 59.6,
    }  # fmt: skip
    line = (
        "NLL 1.2346, weighted 2.0000, weight std 0.12, zero weights 25%, grad norm 0.500, lr 2.00e-05, 12,346 tokens/s"
    )
    assert describe(row) == f"{line}, MFU 0.250, 1.5 GiB, about 60 s left"
    row |= {"mfu": None, "fp8_overlap": 0.98765, "eta_seconds": None}
    assert describe(row) == f"{line}, MFU absent, 1.5 GiB, fp8 overlap 0.9877"


def test_transformers_is_quiet_in_every_run():
    assert transformers_logging.get_verbosity() == transformers_logging.ERROR
    assert not transformers_logging.is_progress_bar_enabled()


TWO_PROCESSES = """
import json, sys, torch
from tokenweight.training.metrics import StepMetrics, same_on_all_ranks
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
metrics = StepMetrics(torch.device("cpu"), 10.0, 1.0)
metrics.add(torch.tensor([[1.0, 3.0]]) + 4 * rank, torch.tensor([[2.0, 0.0], [1.0, 1.0]][rank]).reshape(1, 2))
row = metrics.finish()
reasons = [same_on_all_ranks("bad" if rank == 1 else None), same_on_all_ranks(None)]
with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump([row, reasons], file)
torch.distributed.destroy_process_group()
"""


def two_processes(script, *arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    return subprocess.run([*command, str(script), *map(str, arguments)], timeout=600, capture_output=True, check=False)


def test_two_processes_by_hand(tmp_path):
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    assert two_processes(script, tmp_path).returncode == 0
    (one, reasons_one), (other, reasons_other) = (json.loads((tmp_path / f"{i}.json").read_text()) for i in (0, 1))
    for row in (one, other):
        assert row["nll"] == (1 + 3 + 5 + 7) / 4
        assert row["weighted_nll"] == (2 + 5 + 7) / 4
        assert row["weight_std"] == pytest.approx((6 / 4 - 1) ** 0.5)
        assert row["zero_weight_share"] == 0.25
        assert row["tokens_per_second"] == pytest.approx(6 / row["seconds"])
        assert row["mfu"] == pytest.approx(10 * 2 / row["seconds"] / 2)
    assert one["peak_memory_bytes"] == other["peak_memory_bytes"]
    assert reasons_one == reasons_other == ["bad", None]


BAD_RANK = """
import os, sys, torch
from pathlib import Path
import tokenweight.training.trainer as trainer
from tokenweight.errors import StageError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Weighting
from tokenweight.training.run import fit
from training_calls import TrainRequest

torch.set_num_threads(1)
rank, calls, whole_step = int(os.environ["RANK"]), 0, trainer.weighted_step

def step(*args, short_nll=None, **kwargs):
    global calls
    calls += 1
    if rank == 1 and calls == 5:  # the third step: two micro-batches of a process make one
        short_nll = short_nll * float("nan")
    return whole_step(*args, short_nll=short_nll, **kwargs)

trainer.weighted_step = step
execution = Execution(device="cpu", launcher="torchrun", processes=2, save_every_steps=1)
try:
    request = TrainRequest.model_validate_json(sys.argv[1])
    fit(request.stage, request.inputs, Path(sys.argv[2]), execution, None, no_progress)
except StageError as error:
    (Path(sys.argv[2]) / f"stopped-{rank}").write_text(str(error))
torch.distributed.destroy_process_group()
"""


def test_nan_on_one_rank_ends_both_and_keeps_the_last_checkpoint(make_request, unfrozen, tmp_path):
    script = tmp_path / "bad.py"
    script.write_text(BAD_RANK)
    request = make_request(weighting=Weighting(postprocessing="sparse", kappa=0.3), scorer=unfrozen)
    done = two_processes(script, request.model_dump_json(by_alias=True), tmp_path)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    for rank in (0, 1):
        reason = (tmp_path / f"stopped-{rank}").read_text()
        assert reason == "training stopped at step 3: short_nll is not finite; the last checkpoint is kept"
    assert (tmp_path / "checkpoints" / "checkpoint-2" / "complete.json").is_file()


def test_tensorboard_has_each_step_once_also_after_a_cut(make_request, tmp_path):
    class Cut(BaseException):
        pass

    def cut(done, *_):
        if done == 3:
            raise Cut

    request, execution = make_request(steps=4), Execution(device="cpu", save_every_steps=2)
    with pytest.raises(Cut):
        train(request, tmp_path, execution, cut)
    said = []
    summary = train(request, tmp_path, execution, lambda *args: said.append(args[2]))
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    events = board.Scalars("nll")
    assert [event.step for event in events] == [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [event.value for event in events] == pytest.approx([row["nll"] for row in rows])
    assert "mfu" not in board.Tags()["scalars"]  # a CPU's peak is not known
    assert "MFU absent" in said[0]
    assert said[-1].endswith("about 0 s left")
    assert summary["mfu"] is None
    assert summary["peak_memory_bytes"] == max(row["peak_memory_bytes"] for row in rows)
    tokens = sum(row["tokens_per_second"] * row["seconds"] for row in rows)
    assert tokens == pytest.approx(4 * 4 * 64)
    assert summary["tokens_per_second"] == pytest.approx(tokens / summary["seconds"], rel=0.01)


def test_reports_are_what_was_asked_for(make_request, tmp_path, monkeypatch):
    train(make_request(steps=1), tmp_path, Execution(device="cpu", report_to=()), no_progress)
    assert not (tmp_path / "tensorboard").exists()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in ("wandb", "trackio"):
        with pytest.raises(UserError, match=f"'{name}' is not installed"):
            train(make_request(steps=1), tmp_path / "new", Execution(device="cpu", report_to=(name,)), no_progress)


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_trackers_get_each_step(make_request, tmp_path, monkeypatch, name):
    started, logged, finished = [], [], []
    run = SimpleNamespace(log=lambda row, step: logged.append((step, row)), finish=lambda: finished.append(True))
    package = SimpleNamespace(init=lambda **kwargs: started.append(kwargs) or run, __spec__=object())
    monkeypatch.setitem(sys.modules, name, package)
    train(make_request(steps=2), tmp_path, Execution(device="cpu", report_to=(name,)), no_progress)
    assert [step for step, _ in logged] == [1, 2]
    assert logged[0][1]["nll"] > 0
    assert started[0]["name"] == tmp_path.name
    assert started[0].get("dir") == (str(tmp_path) if name == "wandb" else None)
    assert finished == [True]


def test_llama_3_8b_by_hand():
    config = LlamaConfig(
        hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128_256,
    )  # fmt: skip
    tokens = 32_768
    parameters = 32 * 218_103_808 + 4096 * 128_256
    attention = 32 * 4 * tokens**2 * 4096 / 2
    assert train_flops(config, tokens) == 6 * tokens * parameters + 3 * attention


@pytest.mark.parametrize("family", [LlamaConfig, PhiConfig])
def test_flops_as_torch_counts_them(family):
    config = family(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4 if family is PhiConfig else 2, vocab_size=64, attention_dropout=0.0,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    ids = torch.randint(0, 64, (1, 24))
    with FlopCounterMode(display=False) as counter:
        model(ids).logits.sum().backward()
    masked_half = 3 * 2 * (2 * 2 * 24 * 24 * 32) / 2  # torch counts all products of the attention
    counts = counter.get_flop_counts()["Global"]
    products = sum(counts[op] for op in counts if "mm" in str(op))
    rotary = sum(value for op, value in counts.items() if "bmm" in str(op)) - 2 * 3 * (2 * 2 * 24 * 24 * 32)
    assert 0 <= rotary < 0.01 * products  # positions times frequencies, in the forward pass only
    assert products - rotary == train_flops(config, 24) + masked_half


def test_what_is_not_known_has_no_mfu():
    assert train_flops(SimpleNamespace(model_type="mamba"), 8) is None
    assert peak_flops("cpu") is None
    assert peak_flops("NVIDIA H200") == peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_flops("NVIDIA A100-SXM4-80GB") == 312e12
