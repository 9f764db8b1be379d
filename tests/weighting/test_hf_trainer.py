"""The method added to a plain HF Trainer."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

from tokenweight.recipes.schema import Weighting
from tokenweight.weighting import (
    add_token_weighting,
    install_head,
    model_nll,
    plan_windows,
    score_windows,
    token_weights,
)
from tokenweight.weighting import hf as hf_module
from tokenweight.weighting.scores import SCORES


def arguments_of(tmp_path, **settings):
    values = {
        "output_dir": str(tmp_path), "max_steps": 2, "optim": "sgd", "learning_rate": 0.01, "max_grad_norm": 0.0,
        "use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no",
    }  # fmt: skip
    return TrainingArguments(**{**values, **settings})


def trainer_of(make_llama, tmp_path, rows, **settings):
    return Trainer(model=make_llama(), args=arguments_of(tmp_path, **settings), train_dataset=rows)


def parameters(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def trained(make_llama, tmp_path, accumulation, extra_columns=False, **settings):
    ids = torch.randint(2, 50, (8, 61), generator=torch.Generator().manual_seed(6))
    rows = [{"input_ids": row} for row in ids]
    if extra_columns:
        rows = [{**row, "short_nll": torch.rand(60)} for row in rows]
    trainer = trainer_of(
        make_llama,
        tmp_path,
        rows,
        per_device_train_batch_size=4 // accumulation,
        gradient_accumulation_steps=accumulation,
    )
    add_token_weighting(trainer, short_tokens=16, stride_tokens=12, **settings)
    trainer.train()
    return parameters(trainer.model)


@pytest.mark.parametrize("weighting", [Weighting(), Weighting(postprocessing="sparse", kappa=0.3)])
def test_any_trainer_learns_with_weights_at_any_accumulation(make_llama, tmp_path, weighting):
    results = [trained(make_llama, tmp_path, accumulation, weighting=weighting) for accumulation in (1, 2, 4)]
    start = torch.cat([parameter.detach().flatten() for parameter in make_llama().parameters()])
    moved = (results[0] - start).norm()
    assert moved > 0
    for other in results[1:]:
        assert (results[0] - other).norm() < 1e-3 * moved


def test_a_function_of_one_s_own_gives_the_weights(make_llama, tmp_path, monkeypatch):
    monkeypatch.setattr("tokenweight.weighting.scores.SCORES", dict(SCORES))

    def unsure(long_nll, gamma=2.0):
        return (1 - (-long_nll).exp()).clamp_min(0) ** gamma

    ours = trained(make_llama, tmp_path, 1, weighting=unsure)
    focal = trained(make_llama, tmp_path, 1, weighting=Weighting(score="focal", postprocessing="raw"))
    torch.testing.assert_close(ours, focal)


def test_adapters_learn_with_weights(make_llama, tmp_path):
    """LoRA: the base stays, and the adapters move as by the weighted loss of the merged model."""
    peft = pytest.importorskip("peft")
    weighting, ids = Weighting(postprocessing="sparse", kappa=0.3), torch.randint(2, 50, (4, 61))
    settings = peft.LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    trainer = Trainer(
        model=peft.get_peft_model(make_llama(), settings),
        args=arguments_of(tmp_path, per_device_train_batch_size=4, max_steps=1, learning_rate=0.1),
        train_dataset=[{"input_ids": row} for row in ids],
    )
    adapters = {name: one.detach().clone() for name, one in trainer.model.named_parameters() if one.requires_grad}
    add_token_weighting(trainer, weighting, short_tokens=16, stride_tokens=12)
    trainer.train()
    base = dict(make_llama().named_parameters())
    for name, value in trainer.model.base_model.model.named_parameters():
        plain = name.replace("base_layer.", "")
        if plain in base:
            assert torch.equal(value, base[plain]), name
    moved = [
        name for name, one in trainer.model.named_parameters() if name in adapters and not one.equal(adapters[name])
    ]
    assert len(moved) == 4, "of each pair the one that begins at zero"


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
def test_whose_short_nll_is_taken(
    make_llama, tmp_path, monkeypatch, weighting, frozen, scores_windows, first_window_is_own
):
    seen = {}

    def spy(name):
        real = getattr(hf_module, name)

        def call(*args, **kwargs):
            seen[name] = kwargs
            return real(*args, **kwargs)

        monkeypatch.setattr(hf_module, name, call)

    spy("score_windows")
    spy("weighted_step")
    trainer = trainer_of(make_llama, tmp_path, [])
    trainer.model.train()
    add_token_weighting(trainer, weighting, short_tokens=16, stride_tokens=12, bos_token_id=1, seed=7)
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


DENSE = Weighting(postprocessing="dense", lambda_=0.2)
LENGTHS = (61, 40, 9)  # the last is shorter than a window


def documents():
    draw = torch.Generator().manual_seed(3)
    return [torch.randint(2, 50, (length,), generator=draw) for length in LENGTHS]


def padded(side):
    """The documents in one batch, with labels that leave out the padding and the first's tokens 20 to 29."""
    ids, mask = torch.zeros(3, 61, dtype=torch.long), torch.zeros(3, 61, dtype=torch.long)
    for row, document in enumerate(documents()):
        place = slice(0, len(document)) if side == "right" else slice(61 - len(document), 61)
        ids[row, place], mask[row, place] = document, 1
    labels = torch.where(mask.bool(), ids, -100)
    labels[0, 20:30] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def packed():
    """The same end to end, with positions that begin anew."""
    ids = torch.cat(documents())[None]
    labels = ids.clone()
    labels[0, 20:30] = -100
    return {"input_ids": ids, "labels": labels, "position_ids": torch.cat([torch.arange(n) for n in LENGTHS])[None]}


def by_hand(model, weighting):
    """The loss of each document alone, its predictions picked out, and the mean over all of them."""
    install_head(model)
    total, count = 0.0, 0
    for number, ids in enumerate(documents()):
        nll = model_nll(model, ids[None])
        long_nll = nll.detach()
        short_nll = long_nll.clone()
        if len(ids) > 16:
            plan = plan_windows(len(ids), 16, 12)
            scores = score_windows(model, ids[None], plan, bos_token_id=None, windows_per_batch=4)
            short_nll = plan.with_own_context(scores, long_nll)
        kept = [j for j in range(len(ids) - 1) if number or not 20 <= j + 1 < 30]
        weights = token_weights(long_nll[:, kept], short_nll[:, kept], weighting, sequence_ids=[0], seed=0)
        total, count = total + (weights * nll[:, kept]).sum(), count + len(kept)
    return total / count


@pytest.mark.parametrize("batch", [padded("right"), padded("left"), packed()], ids=["right", "left", "packed"])
def test_padding_prompts_and_packing_change_nothing(make_llama, tmp_path, batch):
    """Loss and gradient are those of each document alone: masks and labels of -100 are honoured."""
    expected_model = make_llama()
    expected = by_hand(expected_model, DENSE)
    expected.backward()
    trainer = trainer_of(make_llama, tmp_path, [])
    add_token_weighting(trainer, DENSE, short_tokens=16, stride_tokens=12)
    trainer.model.train()
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    for (name, ours), theirs in zip(trainer.model.named_parameters(), expected_model.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-6), name


def test_documents_of_any_length_learn_alike_at_any_accumulation(make_llama, tmp_path):
    """The mean is over all labels of a step, whichever micro-batch they come in."""
    rows = [{name: value[row] for name, value in padded("right").items()} for row in (0, 1, 2, 0)]
    results = []
    for size in (4, 2, 1):
        trainer = trainer_of(
            make_llama, tmp_path, rows, per_device_train_batch_size=size, gradient_accumulation_steps=4 // size
        )
        add_token_weighting(trainer, DENSE, short_tokens=16, stride_tokens=12)
        trainer.train()
        results.append(parameters(trainer.model))
    moved = (results[0] - parameters(make_llama())).norm()
    for other in results[1:]:
        assert (results[0] - other).norm() < 1e-3 * moved


def test_the_trainer_keeps_the_column_of_frozen_scores(make_llama, tmp_path):
    """It removes columns that the model's forward does not name, and would train unfrozen without a word."""
    from datasets import Dataset

    ids = torch.randint(2, 50, (4, 61), generator=torch.Generator().manual_seed(6)).tolist()
    short = torch.rand(4, 60, generator=torch.Generator().manual_seed(7)).tolist()
    data = Dataset.from_dict({"input_ids": ids, "short_nll": short, "text": ["a"] * 4})
    trainer = trainer_of(make_llama, tmp_path, data, per_device_train_batch_size=4)
    add_token_weighting(trainer, DENSE, short_tokens=16, stride_tokens=12)
    assert set(next(iter(trainer.get_train_dataloader()))) == {"input_ids", "short_nll"}


def test_evaluation_gives_both_losses_and_the_best_model_is_loaded(make_llama, tmp_path):
    rows = [{"input_ids": ids} for ids in torch.randint(2, 50, (4, 61), generator=torch.Generator().manual_seed(6))]
    trainer = Trainer(
        model=make_llama(),
        args=arguments_of(
            tmp_path, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, load_best_model_at_end=True,
            per_device_eval_batch_size=3,
        ),
        train_dataset=rows,
        eval_dataset=rows,
    )  # fmt: skip
    add_token_weighting(trainer, DENSE, short_tokens=16, stride_tokens=12)
    trainer.train()
    metrics = trainer.evaluate()
    batch = {"input_ids": torch.stack([row["input_ids"] for row in rows])}
    with torch.no_grad():
        plain = model_nll(trainer.model.eval(), batch["input_ids"]).mean().item()
        weighted = trainer.compute_loss(trainer.model.train(), batch).item()
    assert metrics["eval_loss"] == pytest.approx(plain, rel=1e-5)
    assert metrics["eval_weighted_loss"] == pytest.approx(weighted, rel=1e-5)
    assert metrics["eval_weighted_loss"] != pytest.approx(plain, rel=1e-3)
    logged = [entry for entry in trainer.state.log_history if "eval_weighted_loss" in entry]
    assert len(logged) == 3
    assert trainer.state.best_metric == min(entry["eval_loss"] for entry in logged)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"attention_mask": torch.tensor([[1, 0, 1, 1]])}, "attention_mask: has holes"),
        ({"attention_mask": torch.ones(1, 1, 4, 4)}, "attention_mask: has shape"),
        ({"labels": torch.tensor([[1, 2, 3, 5]])}, "labels: differ from input_ids"),
        ({"attention_mask": torch.tensor([[0, 0, 0, 1]])}, "no document of two tokens"),
    ],
)
def test_batches_that_cannot_be_weighted_are_named(make_llama, tmp_path, change, named):
    trainer = trainer_of(make_llama, tmp_path, [])
    add_token_weighting(trainer, DENSE, short_tokens=3, stride_tokens=2)
    with pytest.raises(ValueError, match=named):
        trainer.compute_loss(trainer.model, {"input_ids": torch.tensor([[1, 2, 3, 4]]), **change})
