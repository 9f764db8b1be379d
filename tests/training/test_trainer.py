"""The weighted trainer: gradients, schedule, order, metrics, and the checkpoint it leaves."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from training_calls import score, train
from transformers import AutoModelForCausalLM, AutoTokenizer

from tokenweight.context.rope import assert_rope
from tokenweight.errors import StageError, UserError
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Scorer, Training, Weighting
from tokenweight.training.models import bos_token_id, load_model, resolve_device, validate_checkpoint
from tokenweight.training.stages import weighting_label
from tokenweight.training.trainer import learning_rate_share
from tokenweight.weighting import model_nll, plan_windows, score_windows, token_weights, weighted_nll

DENSE = Weighting(postprocessing="dense", lambda_=0.5)
SPARSE = Weighting(postprocessing="sparse", kappa=0.2)


def metrics(out_dir):
    return [json.loads(line) for line in (out_dir / "metrics.jsonl").read_text().splitlines()]


def weights_of(out_dir):
    return load_file(out_dir / "model" / "model.safetensors")


def run(request, out_dir, micro=1, **execution):
    train(request, out_dir, Execution(device="cpu", micro_batch_sequences=micro, **execution), no_progress)
    return metrics(out_dir)


@pytest.mark.parametrize("weighting", [Weighting(), SPARSE, DENSE], ids=["uniform", "sparse", "dense"])
def test_gradients_are_the_same_for_any_accumulation(make_request, unfrozen, tmp_path, weighting):
    scorer = None if weighting.postprocessing == "uniform" else unfrozen
    request = make_request(steps=2, weighting=weighting, scorer=scorer, gradient_clip=1e9)
    runs = {micro: run(request, tmp_path / str(micro), micro) for micro in (4, 2, 1)}
    for micro in (2, 1):
        for step, expected in zip(runs[micro], runs[4], strict=True):
            for key in ("grad_norm", "weighted_nll", "nll", "weight_std", "zero_weight_share"):
                assert step[key] == pytest.approx(expected[key], rel=2e-4), (micro, key)
    torch.testing.assert_close(weights_of(tmp_path / "1"), weights_of(tmp_path / "4"), rtol=1e-2, atol=2e-4)


def test_first_step_is_the_paper_s_formula(make_request, model_dir, chunk_dir, unfrozen, tmp_path):
    """The trainer's loss and gradient against the public functions, spelled out."""
    request = make_request(steps=1, weighting=SPARSE, scorer=unfrozen, seed=5, gradient_clip=1e9)
    (step,) = run(request, tmp_path, micro=2)

    model = load_model(model_dir, torch.float32)
    ids = torch.from_numpy(np.load(chunk_dir / "tokens.npy")[:4].astype(np.int64))
    plan = plan_windows(64, 16, 12)
    long_nll = model_nll(model, ids)
    short_nll = score_windows(model, ids, plan, bos_token_id=1, windows_per_batch=8)
    short_nll = plan.with_own_context(short_nll, long_nll.detach())
    weights = token_weights(long_nll, short_nll, SPARSE, sequence_ids=[0, 1, 2, 3], seed=5)
    loss = weighted_nll(long_nll, weights)
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    assert step["weighted_nll"] == pytest.approx(loss.item(), rel=1e-5)
    assert step["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert step["nll"] == pytest.approx(long_nll.mean().item(), rel=1e-5)
    assert step["weight_std"] == pytest.approx(weights.std(correction=0).item(), rel=1e-5)
    assert step["zero_weight_share"] == pytest.approx((63 - 13) / 63)
    assert step["predictions"] == 4 * 63
    assert (weights[:, :15] == 0).all()


def test_frozen_scores_give_the_loss_that_scoring_in_place_would(
    make_request, base_dir, chunk_dir, model_dir, frozen, inline, tmp_path
):
    score(
        base_dir,
        chunk_dir,
        tmp_path / "scores",
        scorer=frozen,
        sequences=8,
        execution=inline,
        progress=no_progress,
    )
    request = make_request(steps=2, weighting=DENSE, scorer=frozen, score_dir=tmp_path / "scores")
    first = run(request, tmp_path / "run", micro=2)[0]

    ids = torch.from_numpy(np.load(chunk_dir / "tokens.npy")[:4].astype(np.int64))
    scorer = load_model(base_dir, torch.float32)
    short_nll = score_windows(scorer, ids, plan_windows(64, 16, 12), bos_token_id=1, windows_per_batch=8)
    long_nll = model_nll(load_model(model_dir, torch.float32), ids)
    weights = token_weights(long_nll, short_nll, DENSE, sequence_ids=[0, 1, 2, 3], seed=0)
    assert first["weighted_nll"] == pytest.approx(weighted_nll(long_nll, weights).item(), rel=1e-5)
    assert first["zero_weight_share"] == 0


@pytest.mark.parametrize("score_name", ["focal", "mile", "long_ce"])
def test_weights_of_the_model_s_own_confidence_train(make_request, unfrozen, tmp_path, score_name):
    weighting = Weighting(score=score_name, postprocessing="raw")
    rows = run(make_request(steps=2, weighting=weighting, scorer=unfrozen), tmp_path)
    assert all(np.isfinite(row["weighted_nll"]) for row in rows)
    assert rows[0]["weight_std"] > 0


def test_a_weighting_of_one_s_own_trains_and_is_in_the_name(make_request, tmp_path):
    (tmp_path / "mine.py").write_text("def late(position): return position / 32")
    own = Weighting(score=f"{tmp_path}/mine.py:late", postprocessing="raw")
    request = make_request(steps=1, weighting=own)
    (step,) = run(request, tmp_path / "run")
    assert step["weight_std"] == pytest.approx(torch.arange(1, 64).div(32).std(correction=0).item())
    assert weighting_label(own, None) == "raw-late"


def test_lambda_1_and_kappa_1_train_to_the_same_bits_as_uniform(make_request, unfrozen, tmp_path):
    run(make_request(), tmp_path / "uniform")
    for name, weighting in (
        ("dense", Weighting(postprocessing="dense", lambda_=1.0)),
        ("sparse", Weighting(postprocessing="sparse", kappa=1.0)),
    ):
        run(make_request(weighting=weighting, scorer=unfrozen), tmp_path / name)
        for key, value in weights_of(tmp_path / "uniform").items():
            assert torch.equal(weights_of(tmp_path / name)[key], value)


def test_the_checkpoint_is_a_plain_one_with_extended_rope_and_tokenizer(make_request, model_dir, tmp_path):
    summary = train(make_request(), tmp_path, Execution(device="cpu"), no_progress)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", local_files_only=True)
    assert model.config.rope_parameters["rope_theta"] == 300_000.0
    assert model.config.max_position_embeddings == 64
    assert_rope(model, model.config)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.dtype == torch.float32
    assert AutoTokenizer.from_pretrained(tmp_path / "model").bos_token == "<s>"
    names = {p.name for p in model_dir.iterdir()}
    assert {p.name for p in (tmp_path / "model").iterdir()} == names
    assert sorted(p.name for p in tmp_path.iterdir()) == ["metrics.jsonl", "model", "tensorboard"]
    assert summary["steps"] == 3
    assert summary["effective_steps"] == 2
    assert summary["resumed_from_step"] is None


def test_what_a_shell_says_to_accelerate_changes_nothing(make_request, tmp_path, monkeypatch):
    """Left by `accelerate launch`: another precision, or DeepSpeed, which need not be installed."""
    run(make_request(steps=2), tmp_path / "plain")
    for name, value in {"MIXED_PRECISION": "fp16", "USE_DEEPSPEED": "true", "USE_FSDP": "true"}.items():
        monkeypatch.setenv(f"ACCELERATE_{name}", value)
    run(make_request(steps=2), tmp_path / "shell")
    for key, value in weights_of(tmp_path / "plain").items():
        assert torch.equal(weights_of(tmp_path / "shell")[key], value)


def test_schedule_and_learning_rates(make_request, tmp_path):
    rows = run(make_request(steps=4, warmup_steps=2, learning_rate=0.01), tmp_path)
    assert [row["learning_rate"] for row in rows] == pytest.approx([0.0, 0.005, 0.01, 0.01])
    decay = Training(steps=10, sequences_per_step=1, learning_rate=1.0, warmup_steps=0, final_learning_rate_share=0.1)
    shares = [learning_rate_share(step, decay) for step in range(11)]
    assert shares[0] == 1
    assert shares[10] == pytest.approx(0.1)
    assert shares[5] == pytest.approx(0.55)


def test_the_rate_ends_where_it_shall_and_stays_there():
    def shares(**given):
        training = Training(sequences_per_step=1, learning_rate=1.0, **given)
        return [learning_rate_share(step, training) for step in range(6)]

    decay = {"final_learning_rate_share": 0.5}
    assert shares(steps=4, warmup_steps=2, **decay) == [0.0, 0.5, 1.0, 0.75, 0.5, 0.5]
    assert shares(steps=3, warmup_steps=2, **decay) == [0.0, 0.5, 1.0, 0.5, 0.5, 0.5]
    assert shares(steps=2, warmup_steps=2, **decay)[:3] == [0.0, 0.5, 1.0]


def test_a_bos_is_the_tokenizer_s_or_the_configuration_s():
    of_config = SimpleNamespace(bos_token_id=5)
    found = [bos_token_id(SimpleNamespace(bos_token_id=id), of_config) for id in (0, None)]
    assert found == [0, 5]
    assert bos_token_id(SimpleNamespace(bos_token_id=None), SimpleNamespace()) is None


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch):
    for there, expected in ((False, ["cpu", "cpu", "cuda:1"]), (True, ["cuda:1", "cpu", "cuda:1"])):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert [str(resolve_device(device, 1)) for device in ("auto", "cpu", "cuda")] == expected
    assert str(resolve_device("cuda")) == "cuda:0"


def test_weight_decay_acts_on_norms_too(make_request, tmp_path):
    kwargs = {"steps": 1, "warmup_steps": 0, "learning_rate": 0.1}
    run(make_request(weight_decay=0.0, **kwargs), tmp_path / "without")
    run(make_request(weight_decay=0.5, **kwargs), tmp_path / "with")
    norm = "model.norm.weight"
    difference = weights_of(tmp_path / "without")[norm] - weights_of(tmp_path / "with")[norm]
    torch.testing.assert_close(difference, torch.full((32,), 4.0 * 0.05))  # base norms are 4


def test_bf16_keeps_fp32_parameters_and_saves_bf16(make_request, unfrozen, tmp_path):
    rows = run(make_request(weighting=DENSE, scorer=unfrozen, precision="bf16"), tmp_path, micro=2)
    assert all(np.isfinite(row["weighted_nll"]) for row in rows)
    saved = weights_of(tmp_path)
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert model.dtype == torch.bfloat16
    assert_rope(model, model.config)


@pytest.mark.parametrize("checkpointing", ["full", "keep_attention", "keep_projections"])
def test_checkpointing_of_activations_changes_nothing(make_request, unfrozen, tmp_path, checkpointing, capfd):
    request = make_request(weighting=SPARSE, scorer=unfrozen)
    run(request, tmp_path / "plain")
    run(request, tmp_path / "checkpointed", checkpointing=checkpointing, offload_activations=checkpointing == "full")
    assert capfd.readouterr().err == ""
    torch.testing.assert_close(weights_of(tmp_path / "checkpointed"), weights_of(tmp_path / "plain"))


def test_nothing_is_printed(make_request, tmp_path, capfd):
    steps = []
    train(make_request(), tmp_path, Execution(device="cpu"), lambda *args: steps.append(args))
    assert [(done, total, what.partition(":")[0]) for done, total, what in steps] == [
        (1, 3, "steps"),
        (2, 3, "steps"),
        (3, 3, "steps"),
    ]
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


@pytest.mark.parametrize(("every", "kept"), [(1, "; the last checkpoint is kept"), (8, "")])
def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(make_request, tmp_path, every, kept):
    request = make_request(steps=8, learning_rate=1e30, warmup_steps=4, gradient_clip=1e9)
    with pytest.raises(StageError, match=rf"training stopped at step \d+: .* not finite[^;]*{kept}$"):
        run(request, tmp_path, save_every_steps=every)
    assert not (tmp_path / "model").exists()
    assert (tmp_path / "checkpoints" / "checkpoint-1" / "complete.json").is_file() == bool(kept)


def test_a_model_that_diverged_in_its_last_step_is_not_saved(make_request, tmp_path):
    request = make_request(steps=2, learning_rate=1e30, warmup_steps=1, gradient_clip=1e9)
    with pytest.raises(StageError, match=r"step \(2\): the numbers .* overflow .*; lower the learning rate \(1e\+30\)"):
        run(request, tmp_path)
    assert not [*tmp_path.glob("model*")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 11}, "40 sequences, training reads 44"),
        ({"sequences_per_step": 3, "micro": 2}, "sequences_per_step: 3 is not a multiple"),
        ({"processes": 2}, "execution.launcher"),
        (
            {"weighting": DENSE, "scorer": Scorer(kind="unfrozen", short_tokens=128, stride_tokens=12)},
            r"short_tokens \(128\)",
        ),
    ],
)
def test_bad_requests_are_named_before_the_model_is_loaded(make_request, tmp_path, monkeypatch, change, message):
    monkeypatch.setattr("tokenweight.training.models.load_model", None)
    execution = {key: change.pop(key) for key in ("micro", "processes") if key in change}
    with pytest.raises(UserError, match=message):
        run(make_request(**change), tmp_path, **execution)


def test_sequences_beyond_the_context_are_named(make_request, base_dir, tmp_path):
    request = make_request()
    with pytest.raises(UserError, match="exceed the model's context of 16"):
        run(request.model_copy(update={"model_dir": base_dir}), tmp_path / "out")


def test_token_ids_the_model_does_not_know_are_named(make_request, tmp_path):
    np.save(tmp_path / "tokens.npy", np.full((12, 64), 64, dtype=np.uint32))
    with pytest.raises(StageError, match="sequence 0 holds token 64, the model knows 64"):
        run(make_request().model_copy(update={"chunk_dir": tmp_path}), tmp_path / "out")


def test_a_damaged_checkpoint_does_not_pass_validation(model_dir, tmp_path):
    probe = torch.arange(3, 20)[None]
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    logits = model(input_ids=probe).logits[0].detach()
    for dtype, right, wrong, way in (
        (torch.float32, 1.00009, 1.00011, False),
        (torch.bfloat16, 1.045, 1.065, True),
    ):
        exact = AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype)(input_ids=probe).logits[0].detach().float()
        validate_checkpoint(model_dir, dtype, probe, exact * right)
        with pytest.raises(StageError, match="logits that differ") as refused:
            validate_checkpoint(model_dir, dtype, probe, exact * wrong)
        assert ("train with --set training.precision=fp32" in str(refused.value)) is way
    state = load_file(model_dir / "model.safetensors")
    for name, tensor, message in (
        ("model.norm.weight", torch.full((32,), torch.nan), "model.norm.weight is not finite"),
        ("model.norm.weight", torch.empty(0), r"tensors 1 mismatched \(first .*model.norm.weight"),
        ("another.weight", torch.ones(3), r"tensors 1 unexpected \(first another.weight\)"),
    ):
        shutil.copytree(model_dir, tmp_path / "copy", dirs_exist_ok=True)
        (tmp_path / "copy" / "model.safetensors").unlink()
        save_file({**state, name: tensor}, tmp_path / "copy" / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(StageError, match=message):
            validate_checkpoint(tmp_path / "copy", torch.float32, probe, logits)
