"""Scoring in float8: right products, nothing left behind, and runs refused where it would choose other tokens."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from training_calls import train
from transformers import LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM

import tokenweight.fp8 as fp8
from tokenweight.context.extend import extend
from tokenweight.errors import StageError, UserError
from tokenweight.fp8 import E4M3, check_fp8, fp8_linears, round_to_fp8, top_kappa_overlap
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Extension, Scorer, Weighting
from tokenweight.training.models import load_model
from tokenweight.weighting import install_head, model_nll, plan_windows, score_windows, token_weights, weighted_nll

DENSE = Weighting(postprocessing="dense", lambda_=0.5)
SPARSE = Weighting(postprocessing="sparse", kappa=0.3)
FP8 = Scorer(kind="unfrozen", short_tokens=16, stride_tokens=12, precision="fp8")
CPU = Execution(device="cpu")


@pytest.fixture
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    install_head(model)
    return model


@pytest.fixture
def ids():
    return torch.randint(0, 48, (2, 40), generator=torch.Generator().manual_seed(1))


# --- Rounding and products ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "cast", [fp8._cast, pytest.param(fp8._compiled_cast, marks=pytest.mark.slow)], ids=["eager", "compiled"]
)
def test_rounding_keeps_the_largest_value_and_three_bits_of_all(monkeypatch, cast):
    monkeypatch.setattr(fp8, "_cast", cast)
    x = torch.randn((64, 33), generator=torch.Generator().manual_seed(0)).bfloat16()
    x[3, 4] = -20.0
    values, scale = round_to_fp8(x)
    assert values.dtype == E4M3
    assert scale.item() == 2**-4  # 20 / 2^-4 = 320; half of that scale would give 640
    back = values.float() * scale
    assert back[3, 4] == -20
    error = (back - x.float()).abs() / x.float().abs()
    normal = x.abs() > 2**-4 * 2**-6
    assert 2**-5 < error[normal].max() <= 2**-4
    assert round_to_fp8(torch.full((2,), 448 * 2.0**9))[1] == 2**9


@pytest.mark.parametrize("value", [0.0, 1e-42])
def test_what_has_no_size_is_zero_and_what_is_not_finite_stays_so(value):
    values, scale = round_to_fp8(torch.full((16,), value))
    assert (values.float() * scale).abs().max() <= 1e-41
    for broken in (torch.nan, torch.inf):
        values, scale = round_to_fp8(torch.tensor([1.0, broken]))
        assert not (values.float() * scale)[1].isfinite()


@pytest.mark.parametrize(("dtype", "bias"), [(torch.float32, True), (torch.bfloat16, True), (torch.bfloat16, False)])
def test_a_layer_gives_the_product_of_rounded_factors(dtype, bias):
    torch.manual_seed(0)
    layer = nn.Linear(48, 32, bias=bias, dtype=dtype)
    x = torch.randn((3, 5, 48)).to(dtype)
    with torch.no_grad(), fp8_linears(nn.Sequential(layer)) as names:
        assert names == ["0"]
        got = layer(x)
    left, right = (values.double() * scale for values, scale in map(round_to_fp8, (x, layer.weight.detach())))
    expected = left @ right.T
    expected = expected + layer.bias.double() if bias else expected
    assert got.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got.double(), expected.detach(), rtol=tolerance, atol=tolerance)
    assert not torch.allclose(got, layer(x), rtol=1e-3, atol=1e-3), "float8 rounds more than this"


def test_other_sequences_of_a_batch_change_no_product():
    torch.manual_seed(0)
    layer = nn.Linear(32, 16)
    x = torch.rand((4, 32)) + 0.5
    with torch.no_grad(), fp8_linears(nn.Sequential(layer)):
        for factor in (3.7, 90.0):
            together = layer(torch.cat([x, factor * x]))
            assert torch.equal(together[:4], layer(x))


def test_autocast_decides_about_the_output_as_it_does_for_any_linear_layer():
    layer = nn.Linear(16, 16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), fp8_linears(nn.Sequential(layer)):
        assert layer(torch.ones(2, 16)).dtype == torch.bfloat16


def test_a_pass_with_gradient_is_refused(llama, ids):
    with fp8_linears(llama), pytest.raises(RuntimeError, match="no gradient"):
        model_nll(llama, ids)


# --- Which layers, how often, and what is left ----------------------------------------------------


def test_the_blocks_layers_are_changed_and_put_back(llama, ids):
    q_proj = llama.model.layers[0].self_attn.q_proj
    own = q_proj.forward
    q_proj.forward = own  # somebody else's patch survives
    before = model_nll(llama, ids).detach()
    with torch.no_grad():
        with fp8_linears(llama) as names:
            assert len(names) == 2 * 7
            assert not any("head" in name or "embed" in name for name in names)
            rounded = model_nll(llama, ids)
        assert "forward" not in llama.model.layers[1].mlp.up_proj.__dict__
        assert q_proj.forward is own
        assert torch.equal(model_nll(llama, ids), before)
    assert 1e-4 < (rounded - before).abs().mean() < 0.1
    with pytest.raises(KeyError), fp8_linears(llama):
        raise KeyError
    assert torch.equal(model_nll(llama, ids).detach(), before)


def test_layers_with_other_sides_stay_as_they_are(ids):
    config = PhiConfig(
        vocab_size=48, hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    model = PhiForCausalLM(config).eval()
    install_head(model)
    with torch.no_grad(), fp8_linears(model) as names:
        assert [name.rpartition(".")[2] for name in names] == ["q_proj", "k_proj", "v_proj", "dense"]
        assert model_nll(model, ids).isfinite().all()


@pytest.mark.parametrize("views", [False, True], ids=["the same tensor", "views, as from hooks of ZeRO-3"])
def test_an_input_of_several_layers_is_rounded_once(llama, ids, monkeypatch, views):
    rounded = []
    monkeypatch.setattr(fp8, "round_to_fp8", lambda x: rounded.append(x.shape) or round_to_fp8(x))
    if views:
        for module in llama.modules():
            if type(module) is nn.Linear:
                module.register_forward_pre_hook(lambda _, inputs: tuple(x.detach() for x in inputs))
    with torch.no_grad(), fp8_linears(llama):
        model_nll(llama, ids)
    assert len(rounded) == 2 * (7 + 4)  # weights; inputs of q/k/v, o, gate/up, down


def test_an_input_changed_in_place_is_rounded_again():
    layer = nn.Linear(16, 16, bias=False)
    x = torch.ones(2, 16)
    with torch.no_grad(), fp8_linears(nn.Sequential(layer)):
        once = layer(x)
        x *= 2
        torch.testing.assert_close(layer(x), 2 * once)


# --- In training ------------------------------------------------------------------------------------


def rows_of(out_dir):
    return [json.loads(line) for line in (out_dir / "metrics.jsonl").read_text().splitlines()]


def first_step(request):
    """Token ids, and the long and both short NLLs of the first step, by the public functions."""
    model = load_model(request.model_dir, torch.float32)
    tokens = np.load(request.chunk_dir / "tokens.npy")[: request.stage.training.sequences_per_step]
    ids, plan = torch.from_numpy(tokens.astype(np.int64)), plan_windows(64, 16, 12)
    with torch.no_grad():
        long_nll = model_nll(model, ids)
        scores = []
        for _ in range(2):
            nll = score_windows(model, ids, plan, bos_token_id=1, windows_per_batch=4, first_window=False)
            scores.append(plan.with_own_context(nll, long_nll))
            if len(scores) == 1:
                context = fp8_linears(model)
                context.__enter__()
        context.__exit__(None, None, None)
    return long_nll, *scores


@pytest.mark.parametrize("weighting", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_the_first_step_trains_with_fp8_scores_and_says_the_overlap(make_request, monkeypatch, tmp_path, weighting):
    monkeypatch.setattr("tokenweight.fp8.MINIMUM_OVERLAP", 0.3)
    request = make_request(weighting=weighting, scorer=FP8)
    said = []
    summary = train(request, tmp_path, CPU, lambda *args: said.append(args[2]))
    long_nll, exact, in_fp8 = first_step(request)
    common = {"sequence_ids": range(4), "seed": 0}
    weights = token_weights(long_nll, in_fp8, weighting, **common)
    rows = rows_of(tmp_path)
    assert rows[0]["weighted_nll"] == pytest.approx(weighted_nll(long_nll, weights).item(), rel=1e-5)
    assert rows[0]["nll"] == pytest.approx(long_nll.mean().item(), rel=1e-5)
    shared, chosen = top_kappa_overlap(long_nll, exact, in_fp8, weighting, **common)
    assert 0.3 < shared / chosen < 1
    assert rows[0]["fp8_overlap"] == summary["fp8_overlap"] == shared / chosen
    assert ["fp8 overlap" in line for line in said] == [True, False, False]
    assert not any("fp8_overlap" in row for row in rows[1:])


def test_a_run_whose_choice_of_tokens_would_change_is_refused(make_request, tmp_path):
    request = make_request(weighting=DENSE, scorer=FP8)
    shared, chosen = top_kappa_overlap(*first_step(request), DENSE, sequence_ids=range(4), seed=0)
    assert shared / chosen < 0.98
    with pytest.raises(StageError, match=rf"agree with fp32 scores on {shared / chosen:.4f} of the top 0\.2") as caught:
        train(request, tmp_path, CPU, no_progress)
    assert "\n" not in str(caught.value)
    assert "'training'" in str(caught.value)
    assert rows_of(tmp_path) == []


@pytest.fixture
def untouched_dir(make_scorer, tmp_path):
    """A model in which no layer fits float8: its fp8 scores are exact."""
    narrow = make_scorer(hidden_size=24, intermediate_size=40)
    extend(narrow, Extension(long_tokens=64, rope_theta=300_000.0), tmp_path / "narrow")
    return tmp_path / "narrow" / "model"


def test_the_overlap_is_measured_again_after_a_resume(make_request, untouched_dir, tmp_path):
    request = make_request(weighting=SPARSE, scorer=FP8).model_copy(update={"model_dir": untouched_dir})
    execution = CPU.model_copy(update={"save_every_steps": 1})

    def cut(done, *_):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(request, tmp_path / "out", execution, cut)
    summary = train(request, tmp_path / "out", execution, no_progress)
    assert summary["resumed_from_step"] == 1
    assert [row.get("fp8_overlap") for row in rows_of(tmp_path / "out")] == [1.0, 1.0, None]
    assert summary["fp8_overlap"] == 1.0


def test_without_fp8_nothing_is_measured(make_request, unfrozen, tmp_path):
    summary = train(make_request(weighting=SPARSE, scorer=unfrozen), tmp_path, CPU, no_progress)
    assert "fp8_overlap" not in summary
    assert not any("fp8_overlap" in row for row in rows_of(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("deepspeed_stage", [0, 3])
def test_two_processes_agree_on_the_overlap_and_on_refusal(make_request, monkeypatch, tmp_path, deepspeed_stage):
    if deepspeed_stage:
        pytest.importorskip("deepspeed")
    request = make_request(weighting=DENSE, scorer=FP8)
    shared, chosen = top_kappa_overlap(*first_step(request), DENSE, sequence_ids=range(4), seed=0)
    two = Execution(device="cpu", launcher="torchrun", processes=2, deepspeed_stage=deepspeed_stage)
    with pytest.raises(StageError, match=rf"on {shared / chosen:.4f} of the top"):
        train(request, tmp_path, two, no_progress)


# --- Where it is refused before anything runs -------------------------------------------------------


def test_a_device_without_float8_is_named(monkeypatch, make_request, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    with pytest.raises(UserError, match=r"scorer\.precision: fp8 needs .* not NVIDIA A100; set it to 'training'"):
        train(make_request(weighting=DENSE, scorer=FP8), tmp_path, Execution(device="cuda"), no_progress)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    check_fp8(torch.device("cuda", 0))
    check_fp8(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="not cuda"):
        check_fp8(torch.device("cuda", 0))


def test_a_frozen_scorer_takes_no_fp8():
    with pytest.raises(ValueError, match="precision 'fp8' is for unfrozen scorers"):
        Scorer(kind="frozen", short_tokens=16, stride_tokens=12, precision="fp8")
