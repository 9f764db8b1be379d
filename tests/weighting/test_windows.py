"""Windows: every prediction once, by the right window, with nothing of what the window does not hold."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokenweight.weighting import install_head, model_nll, plan_windows, score_windows
from tokenweight.weighting.windows import window_token_ids


def contexts(plan):
    """Column -> how many tokens its window shows before the predicted one; each column once, in order."""
    found = [
        (column, column + 1 - start)
        for start, fill in zip(plan.starts, plan.scored_ranges, strict=True)
        for column in range(*fill)
    ]
    assert [column for column, _ in found] == list(range(plan.long_tokens - 1))
    return [context for _, context in found]


def test_llama_8k_windows_are_those_of_the_paper():
    plan = plan_windows(32768, 8192, 6144)
    assert plan.starts == (0, 6144, 12288, 18432, 24576)
    assert plan.scored_ranges == ((0, 8191), (8191, 14335), (14335, 20479), (20479, 26623), (26623, 32767))
    assert contexts(plan) == [*range(1, 8192), *(4 * [*range(2048, 8192)])]
    later = contexts(plan)[8191:]
    assert sum(later) / len(later) == pytest.approx(5119.5)


@pytest.mark.parametrize(("stride", "windows", "least_context"), [(1920, 17, 128), (1536, 21, 512)])
def test_phi_2_windows_at_both_strides(stride, windows, least_context):
    plan = plan_windows(32768, 2048, stride)
    assert plan.starts == tuple(range(0, 30721, stride))
    assert len(plan.starts) == windows
    assert plan.scored_ranges == ((0, 2047), *((a, a + stride) for a in range(2047, 32767, stride)))
    assert contexts(plan) == [*range(1, 2048), *((windows - 1) * [*range(least_context, 2048)])]


def test_128k_windows():
    plan = plan_windows(131072, 8192, 7680)
    assert plan.starts == tuple(range(0, 122881, 7680))
    assert len(plan.starts) == 17
    assert plan.scored_ranges == ((0, 8191), *((a, a + 7680) for a in range(8191, 131071, 7680)))
    assert contexts(plan) == [*range(1, 8192), *(16 * [*range(512, 8192)])]


def test_last_window_is_right_aligned_and_scores_only_what_is_left():
    plan = plan_windows(100, 32, 24)
    assert plan.starts == (0, 24, 48, 68)
    assert plan.scored_ranges == ((0, 31), (31, 55), (55, 79), (79, 99))
    assert contexts(plan) == [*range(1, 32), *range(8, 32), *range(8, 32), *range(12, 32)]
    phi = plan_windows(16384, 2048, 1920)  # Phi-2 at half the length: the last step is 896 tokens
    assert phi.starts == (0, 1920, 3840, 5760, 7680, 9600, 11520, 13440, 14336)
    assert contexts(phi) == [*range(1, 2048), *(7 * [*range(128, 2048)]), *range(1152, 2048)]


def test_one_window_where_the_contexts_are_equal():
    plan = plan_windows(32, 32, 8)
    assert (plan.starts, plan.scored_ranges) == ((0,), ((0, 31),))


@given(st.data())
def test_every_prediction_is_scored_once_with_enough_context(data):
    long_tokens = data.draw(st.integers(2, 400))
    short_tokens = data.draw(st.integers(2, long_tokens))
    stride_tokens = data.draw(st.integers(1, short_tokens - 1))
    plan = plan_windows(long_tokens, short_tokens, stride_tokens)
    columns = [column for fill in plan.scored_ranges for column in range(*fill)]
    assert columns == list(range(long_tokens - 1))
    assert len(plan.starts) == 1 + -(-(long_tokens - short_tokens) // stride_tokens)
    assert plan.starts == tuple(sorted(set(plan.starts)))
    for window, (start, fill) in enumerate(zip(plan.starts, plan.scored_ranges, strict=True)):
        assert 0 <= start <= long_tokens - short_tokens
        for column in range(*fill):
            context = column + 1 - start
            assert context <= short_tokens - 1
            assert window == 0 or context >= short_tokens - stride_tokens


@pytest.mark.parametrize(
    ("sizes", "field"),
    [((64, 16, 16), "stride"), ((64, 16, 0), "stride"), ((16, 64, 8), "short"), ((64, 1, 1), "short")],
)
def test_impossible_windows_are_refused_by_name(sizes, field):
    with pytest.raises(ValueError, match=f"^{field}_tokens"):
        plan_windows(*sizes)


def test_windows_hold_their_tokens_and_begin_with_bos_where_the_sequence_does():
    plan = plan_windows(20, 8, 6)
    ids = torch.arange(100, 120).repeat(2, 1)
    ids[0, 0] = 1
    windows = window_token_ids(ids, plan, [0, 1, 2], bos_token_id=1)
    assert windows.shape == (2, 3, 8)
    assert windows[0, 1].tolist() == [1, *range(107, 114)]
    assert windows[1, 1].tolist() == list(range(106, 114))
    assert windows[0, 2].tolist() == [1, *range(113, 120)]
    assert torch.equal(window_token_ids(ids, plan, [1], bos_token_id=None)[0, 0], ids[0, 6:14])
    assert ids[0, 6] == 106, "the sequence itself stays as it was"


def test_windows_of_another_length_are_refused():
    with pytest.raises(ValueError, match="20 tokens"):
        window_token_ids(torch.zeros(1, 20, dtype=torch.long), plan_windows(21, 8, 6), [0], None)


@pytest.mark.parametrize("windows_per_batch", [1, 3, 100])
def test_short_nll_equals_each_window_alone(make_llama, windows_per_batch):
    model = make_llama()
    ids = torch.randint(2, 50, (3, 61), generator=torch.Generator().manual_seed(1))
    plan = plan_windows(61, 16, 12)
    install_head(model)
    scored = score_windows(model, ids, plan, bos_token_id=None, windows_per_batch=windows_per_batch)
    for start, (first, stop) in zip(plan.starts, plan.scored_ranges, strict=True):
        logits = model(input_ids=ids[:, start : start + 16]).logits.detach()
        for column in range(first, stop):
            log_p = logits[:, column - start].log_softmax(-1)
            expected = -log_p.gather(1, ids[:, column + 1, None])[:, 0]
            torch.testing.assert_close(scored[:, column], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bos_token_id", [None, 1])
@pytest.mark.parametrize("sizes", [(64, 16, 12), (61, 16, 12)], ids=["divisible", "right-aligned"])
def test_no_token_sees_what_its_window_does_not_hold(make_llama, sizes, bos_token_id):
    model = make_llama()
    install_head(model)
    plan = plan_windows(*sizes)
    ids = torch.randint(2, 50, (1, sizes[0]), generator=torch.Generator().manual_seed(2))
    ids[0, 0] = 1
    before = score_windows(model, ids, plan, bos_token_id=bos_token_id, windows_per_batch=2)
    for start, (first, stop) in zip(plan.starts, plan.scored_ranges, strict=True):
        changed = (ids + 7) % 48 + 2
        changed[:, 0] = 1
        changed[:, start : start + 16] = ids[:, start : start + 16]
        after = score_windows(model, changed, plan, bos_token_id=bos_token_id, windows_per_batch=2)
        torch.testing.assert_close(after[:, first:stop], before[:, first:stop], rtol=1e-6, atol=1e-6)
        assert not torch.allclose(after, before), "the change is seen elsewhere"


@pytest.mark.parametrize("bos_token_id", [None, 1])
def test_every_token_sees_all_that_its_window_holds(make_llama, bos_token_id):
    """The first token of a window counts, unless BOS has taken its place."""
    model = make_llama()
    install_head(model)
    plan = plan_windows(61, 16, 12)
    ids = torch.randint(2, 50, (1, 61), generator=torch.Generator().manual_seed(2))
    ids[0, 0] = 1
    before = score_windows(model, ids, plan, bos_token_id=bos_token_id, windows_per_batch=9)
    for start, (first, stop) in zip(plan.starts[1:], plan.scored_ranges[1:], strict=True):
        for place in (start, start + 1, first):
            changed = ids.clone()
            changed[0, place] = ids[0, place] % 48 + 2
            after = score_windows(model, changed, plan, bos_token_id=bos_token_id, windows_per_batch=9)
            replaced = place == start and bos_token_id is not None
            assert torch.equal(after[:, first:stop], before[:, first:stop]) == replaced


def test_bos_in_a_mixed_batch_is_that_of_each_sequence_alone(make_llama):
    model = make_llama()
    install_head(model)
    plan = plan_windows(61, 16, 12)
    ids = torch.randint(2, 50, (3, 61), generator=torch.Generator().manual_seed(8))
    ids[1, 0] = 1
    together = score_windows(model, ids, plan, bos_token_id=1, windows_per_batch=4)
    for row, bos in enumerate((None, 1, None)):
        alone = score_windows(model, ids[row : row + 1], plan, bos_token_id=bos, windows_per_batch=4)
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-5, atol=1e-5)
    for start, (first, stop) in zip(plan.starts[1:], plan.scored_ranges[1:], strict=True):
        window = torch.cat([torch.tensor([1]), ids[1, start + 1 : start + 16]])
        expected = model_nll(model, window[None], first - start, stop - start)[0]
        torch.testing.assert_close(together[1, first:stop], expected.detach(), rtol=1e-5, atol=1e-5)


def test_scoring_leaves_the_model_in_the_mode_it_was_in(make_llama):
    model = make_llama()
    install_head(model)
    plan = plan_windows(32, 16, 12)
    for training in (True, False):
        model.train(training)
        scored = score_windows(
            model, torch.zeros(1, 32, dtype=torch.long), plan, bos_token_id=None, windows_per_batch=9
        )
        assert model.training is training
        assert not scored.requires_grad


def test_scoring_knows_no_dropout(make_llama):
    """With it, equal contexts would disagree."""
    model = make_llama()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    install_head(model)
    plan = plan_windows(61, 16, 12)
    ids = torch.randint(2, 50, (1, 61), generator=torch.Generator().manual_seed(3))
    scored = [
        score_windows(model.train(mode), ids, plan, bos_token_id=None, windows_per_batch=9) for mode in (True, False)
    ]
    assert torch.equal(*scored)


def test_unfrozen_columns_of_the_first_window_come_from_the_long_pass(make_llama):
    model = make_llama()
    install_head(model)
    plan = plan_windows(61, 16, 12)
    ids = torch.randint(2, 50, (2, 61), generator=torch.Generator().manual_seed(3))
    long_nll = model_nll(model, ids).detach()
    later = score_windows(model, ids, plan, bos_token_id=None, windows_per_batch=9, first_window=False)
    assert (later[:, :15] == 0).all()
    short_nll = plan.with_own_context(later, long_nll)
    assert torch.equal(short_nll[:, :15], long_nll[:, :15])
    assert torch.equal(short_nll[:, 15:], later[:, 15:])
    everything = score_windows(model, ids, plan, bos_token_id=None, windows_per_batch=9)
    torch.testing.assert_close(short_nll, everything, rtol=1e-5, atol=1e-5)
