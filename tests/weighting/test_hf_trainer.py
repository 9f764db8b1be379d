"""The method added to a plain HF Trainer."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

from tokenweight.recipes.schema import Weighting
from tokenweight.weighting import add_token_weighting


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
