"""Runs of several processes that were cut: bit for bit on as many, up to rounding on others."""

import shutil
import sys
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file
from training_calls import score, train

from tokenweight.errors import StageError, UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution

sys.path.insert(0, str(Path(__file__).parent))
from test_resume import DENSE, SPARSE, assert_same_run, losses

# Ends the second process by SIGKILL while a checkpoint is being written; Python runs it at its start.
KILLER = """
import os, signal, threading, time
from pathlib import Path

def watch(checkpoint):
    while not checkpoint.is_dir() or (checkpoint / "complete.json").is_file():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

if os.environ.get("RANK") == "1":
    threading.Thread(target=watch, args=(Path(os.environ["KILLED_AT"]),), daemon=True).start()
"""


def killed_at(step):
    """Every process is gone at once: asked to end, small models would be done before they heard of it."""

    def progress(done, *_):
        if done >= step:
            for child in psutil.Process().children(recursive=True):
                child.kill()
            raise KeyboardInterrupt

    return progress


def processes(count, stage):
    if stage:
        pytest.importorskip("deepspeed")
    launcher = "inline" if count == 1 and not stage else "torchrun"
    return Execution(device="cpu", launcher=launcher, processes=count, deepspeed_stage=stage, save_every_steps=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "kind"), [(0, "unfrozen"), (0, "frozen"), (2, "unfrozen"), (3, "unfrozen"), (3, "frozen")]
)
def test_a_process_killed_while_a_checkpoint_is_written(
    make_request, unfrozen, frozen, base_dir, chunk_dir, inline, tmp_path, monkeypatch, stage, kind
):
    execution = processes(2, stage)
    scores = tmp_path / "scores" if kind == "frozen" else None
    if scores is not None:
        score(
            base_dir, chunk_dir, scores, scorer=frozen, sequences=20, execution=inline,
            progress=no_progress,
        )  # fmt: skip
    scorer = frozen if scores else unfrozen
    request = make_request(steps=5, weighting=DENSE if scores else SPARSE, scorer=scorer, score_dir=scores)
    cut = tmp_path / "cut"
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "sitecustomize.py").write_text(KILLER)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path / "start"))
        patch.setenv("KILLED_AT", str(cut / "checkpoints" / "checkpoint-4"))
        with pytest.raises(StageError):
            train(request, cut, execution, no_progress)
    assert (cut / "checkpoints" / "checkpoint-4").is_dir()
    assert not (cut / "checkpoints" / "checkpoint-4" / "complete.json").exists()
    seen = []
    summary = train(request, cut, execution, lambda done, *_: seen.append(done))
    assert (summary["resumed_from_step"], summary["skipped_checkpoints"]) == (2, ["checkpoint-4"])
    assert seen == [3, 4, 5]
    train(request, tmp_path / "whole", execution, no_progress)
    assert_same_run(cut, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "before", "after", "precision"),
    [
        (0, 2, 1, "fp32"),
        (0, 1, 2, "fp32"),
        (2, 2, 1, "fp32"),
        (2, 1, 2, "fp32"),
        (3, 2, 1, "fp32"),
        (3, 1, 2, "fp32"),
        (2, 2, 1, "bf16"),
        (3, 2, 1, "bf16"),
    ],
)
def test_another_number_of_processes(make_request, unfrozen, tmp_path, stage, before, after, precision):
    made, present = processes(before, stage), processes(after, stage)
    # In bf16 a random model's sparse choice hangs on rounding: compare smooth weights there.
    weighting, tolerance = (SPARSE, 1e-4) if precision == "fp32" else (DENSE, 1e-2)
    request = make_request(
        steps=5, weighting=weighting, scorer=unfrozen, precision=precision, learning_rate=1e-3, warmup_steps=0
    )
    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        train(request, cut, made, killed_at(3))
    for later in set((cut / "checkpoints").iterdir()) - {cut / "checkpoints" / "checkpoint-2"}:
        shutil.rmtree(later)
    with pytest.raises(UserError, match=f"was written with processes {before}, this run has processes {after}"):
        train(request, cut, present, no_progress)
    seen = []
    asked = present.model_copy(update={"convert_checkpoints": True})
    summary = train(request, cut, asked, lambda done, *_: seen.append(done))
    assert (summary["resumed_from_step"], seen) == (2, [3, 4, 5])
    assert [(entry["step"], entry["processes"]) for entry in summary["converted_from"]] == [(2, before)]
    train(request, tmp_path / "whole", made, no_progress)
    rows, whole = losses(cut), losses(tmp_path / "whole")
    assert rows[2]["nll"] == pytest.approx(whole[2]["nll"], rel=1e-6)  # of the weights as they were read
    for got, expected in zip(rows, whole, strict=True):
        assert got == pytest.approx(expected, rel=tolerance)
    if precision == "bf16":
        return  # its rounding hides how far a weight moved
    got, expected = (load_file(folder / "model" / "model.safetensors") for folder in (cut, tmp_path / "whole"))
    start = load_file(request.model_dir / "model.safetensors")
    for name, tensor in expected.items():
        assert (got[name] - tensor).norm() < 1e-3 * (tensor - start[name]).norm(), name
