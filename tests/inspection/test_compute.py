"""The numbers equal a direct computation from the logits of transformers."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tokenweight.inspection.compute import window_plan
from tokenweight.inspection.request import Options


def direct_nll(model_dir: Path, ids: list[int]) -> np.ndarray:
    """NLL of tokens 1.. of a sequence under the plain model."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1].double()
    return -torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]].numpy()


def direct_short(model_dir: Path, ids: list[int], n: int, s: int, first: np.ndarray) -> np.ndarray:
    """Short NLL by hand: every later window begins with BOS and gives what is not yet known."""
    nll = [*first]
    start = s
    while len(nll) < len(ids) - 1:
        begin = min(start, len(ids) - n)
        window = direct_nll(model_dir, [ids[0], *ids[begin + 1 : begin + n]])
        nll += [*window[len(nll) - begin :]]
        start += s
    return np.array(nll)


@pytest.fixture
def numbers(inspected):
    """The numbers of an inspection as arrays [M]."""

    def run(*given, **options) -> SimpleNamespace:
        content = inspected(*given, **options)
        tokens = content["tokens"]
        arrays = {name: np.float32(tokens[name][1:]) for name in ("long_nll", "short_nll", "weight")}
        return SimpleNamespace(
            ids=tokens["id"], short_context_tokens=np.array(tokens["short_context_tokens"][1:]), **arrays,
            settings=content["settings"],
        )  # fmt: skip

    return run


def test_unfrozen_equals_a_direct_computation(numbers, novel_file, base_dir) -> None:
    result = numbers(novel_file, long_tokens=300, short_tokens=100, stride_tokens=70)
    ids = result.ids
    long = direct_nll(base_dir, ids)
    short = direct_short(base_dir, ids, 100, 70, long[:99])
    assert result.long_nll == pytest.approx(long, abs=1e-4)
    assert result.short_nll == pytest.approx(short, abs=1e-4)
    score = np.abs(long - short)
    assert result.weight == pytest.approx(299 * score / score.sum(), abs=1e-3)
    assert (result.weight[:99] == 0).all()
    assert result.short_context_tokens[[0, 98, 99, 298]].tolist() == [1, 99, 30, 99]


def test_frozen_takes_every_window_from_the_scorer(numbers, novel_file, base_dir, extended_dir) -> None:
    result = numbers(novel_file, checkpoint=extended_dir, scorer=base_dir, long_tokens=300, short_tokens=128)
    ids = result.ids
    assert result.settings["stride_tokens"] == 96
    assert result.long_nll == pytest.approx(direct_nll(extended_dir, ids), abs=1e-4)
    first = direct_nll(base_dir, ids[:128])
    assert result.short_nll == pytest.approx(direct_short(base_dir, ids, 128, 96, first), abs=1e-4)
    assert (result.weight[:127] > 0).any()


def test_long_ce_leaves_the_first_window_alone(numbers, novel_file, base_dir, extended_dir) -> None:
    weighting = {"score": "long_ce", "postprocessing": "raw"}
    result = numbers(novel_file, checkpoint=extended_dir, scorer=base_dir, long_tokens=200, **weighting)
    assert (result.weight[: result.settings["short_tokens"] - 1] == 1).all()
    assert result.weight.max() <= 5.001


@pytest.mark.parametrize("frozen", [False, True])
def test_sparse_takes_the_papers_kappa(numbers, novel_file, base_dir, frozen) -> None:
    scorer = base_dir if frozen else None
    result = numbers(novel_file, postprocessing="sparse", scorer=scorer, long_tokens=101)
    assert (result.weight > 0).sum() == (40 if frozen else 20)


def test_mile_uses_the_entropy(numbers, novel_file) -> None:
    result = numbers(novel_file, score="mile", postprocessing="raw", long_tokens=64)
    assert (result.weight >= 1).all()
    assert result.weight.max() <= 1 + math.log(4096)


def test_the_text_may_be_as_short_as_two_tokens(numbers, tmp_path) -> None:
    (tmp_path / "a.txt").write_text("a")
    result = numbers(tmp_path / "a.txt")
    assert len(result.ids) == 2
    assert result.weight.tolist() == [1.0]


def test_short_context_is_counted_within_each_window(numbers, novel_file) -> None:
    result = numbers(novel_file, long_tokens=10, short_tokens=4, stride_tokens=3)
    assert result.short_context_tokens.tolist() == [1, 2, 3, 1, 2, 3, 1, 2, 3]


def test_default_windows_are_the_papers() -> None:
    for long_tokens, context, expected in (
        (32768, 32768, (8192, 6144)),
        (32768, 2048, (2048, 1536)),
        (2, 1024, (2, 1)),
    ):
        plan = window_plan(Options(), long_tokens, context)
        assert (plan.short_tokens, plan.stride_tokens) == expected
