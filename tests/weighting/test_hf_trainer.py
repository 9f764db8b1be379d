"""The method added to a plain HF Trainer."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Trainer, TrainingArguments

from tokenweight.recipes.schema import Weighting
from tokenweight.weighting import add_token_weighting, plan_windows
from tokenweight.weighting import hf as hf_module


def trained(make_llama, tmp_path, accumulation, extra_columns=False, **settings):
    ids = torch.randint(2, 50, (8, 61), generator=torch.Generator().manual_seed(6))
    rows = [{"input_ids": row} for row in ids]
    if extra_columns:
        rows = [{**row, "short_nll": torch.rand(60)} for row in rows]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=4 // accumulation,
        gradient_accumulation_steps=accumulation,
        optim="sgd",
        learning_rate=0.01,
        max_grad_norm=0.0,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        remove_unused_columns=False,
    )
    trainer = Trainer(model=make_llama(), args=arguments, train_dataset=rows)
    add_token_weighting(trainer, short_tokens=16, stride_tokens=12, **settings)
    trainer.train()
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


@pytest.mark.parametrize("weighting", [Weighting(), Weighting(postprocessing="sparse", kappa=0.3)])
def test_any_trainer_learns_with_weights_at_any_accumulation(make_llama, tmp_path, weighting):
    results = [trained(make_llama, tmp_path, accumulation, weighting=weighting) for accumulation in (1, 2, 4)]
    start = torch.cat([parameter.detach().flatten() for parameter in make_llama().parameters()])
    moved = (results[0] - start).norm()
    assert moved > 0
    for other in results[1:]:
        assert (results[0] - other).norm() < 1e-3 * moved


def test_frozen_scores_come_as_a_column(make_llama, tmp_path):
    weighting = Weighting(postprocessing="dense", lambda_=0.2)
    frozen = trained(make_llama, tmp_path, 1, extra_columns=True, weighting=weighting)
    assert not torch.equal(frozen, trained(make_llama, tmp_path, 1, weighting=weighting))


@pytest.mark.parametrize(
    ("weighting", "frozen", "scores_windows", "first_window_is_own"),
    [
        (Weighting(), False, False, False),
        (Weighting(postprocessing="dense", lambda_=0.5), False, True, True),
        (Weighting(postprocessing="dense", lambda_=0.5), True, False, False),
        (Weighting(score="focal", postprocessing="dense", lambda_=0.5), False, False, False),
        (Weighting(score="long_ce", postprocessing="raw"), False, True, True),
        (Weighting(score="long_ce", postprocessing="raw"), True, False, True),
    ],
)
def test_whose_short_nll_is_taken(make_llama, monkeypatch, weighting, frozen, scores_windows, first_window_is_own):
    seen = {}

    def spy(name):
        real = getattr(hf_module, name)

        def call(*args, **kwargs):
            seen[name] = kwargs
            return real(*args, **kwargs)

        monkeypatch.setattr(hf_module, name, call)

    spy("score_windows")
    spy("weighted_step")
    trainer = SimpleNamespace(model=make_llama())
    add_token_weighting(trainer, weighting, short_tokens=16, stride_tokens=12, bos_token_id=1, seed=7)
    assert trainer.loss_is_scaled_for_ga is False
    batch = {"input_ids": torch.randint(2, 50, (2, 61))} | ({"short_nll": torch.rand(2, 60)} if frozen else {})
    loss, outputs = trainer.compute_loss(trainer.model, batch, return_outputs=True)
    assert outputs["nll"].shape == (2, 60)
    assert torch.equal(loss, trainer.compute_loss(trainer.model, batch))
    assert ("score_windows" in seen) == scores_windows
    if scores_windows:
        assert seen["score_windows"] == {"bos_token_id": 1, "windows_per_batch": 4, "first_window": False}
    step = seen["weighted_step"]
    assert step["own_first_window"] == (plan_windows(61, 16, 12) if first_window_is_own else None)
    assert step["seed"] == 7
    assert (step["short_nll"] is not None) == (frozen or scores_windows)


def test_a_sequence_s_number_is_the_same_everywhere():
    """It seeds random ties: 64 bits of SHA-256 over the token ids as little-endian uint32."""
    assert hf_module._content_id(torch.arange(5)) == 16578617322939623653
    assert hf_module._content_id(torch.arange(5).flip(0)) != 16578617322939623653
