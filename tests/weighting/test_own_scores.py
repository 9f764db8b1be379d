"""A score function of one's own: by decorator, from a file, with or without a scorer."""

import functools

import pytest
import torch
from pydantic import ValidationError

from tokenweight.weighting import Weighting, token_weights, weighting
from tokenweight.weighting.scores import GIVEN, SCORES, find_score
from tokenweight.weighting.weights import token_scores

LONG = torch.tensor([[1.0, 4.0, 2.0, 0.5]])
SHORT = torch.tensor([[3.0, 1.0, 2.0, 1.0]])
CODE = """\
def gain(long_nll, short_nll, gamma=2.0):
    return (short_nll - long_nll).clamp_min(0) * gamma

def by_position(position):
    return position

late = by_position
strange = 3
"""


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setattr("tokenweight.weighting.scores.SCORES", known := dict(SCORES))
    return known


def weights(chosen, **more):
    return token_weights(LONG, SHORT, chosen, sequence_ids=[0], seed=0, **more).tolist()


def test_every_score_of_ours_says_what_it_is_and_takes_what_is_given():
    for name, score in SCORES.items():
        assert score.function.__doc__, name
        assert set(score.inputs) <= set(GIVEN)
        assert Weighting(score=name).label == name


def test_a_decorated_function_is_a_weighting_by_its_name(own):
    @weighting("half_gain")
    def anything(long_nll, short_nll):
        """Half the gain."""
        return (short_nll - long_nll).clamp_min(0) / 2

    assert anything(LONG, SHORT)[0, 0] == 1
    assert weights(Weighting(score="half_gain", postprocessing="raw")) == [[1, 0, 0, 0.25]]
    assert weights(Weighting(score="half_gain", postprocessing="sparse", kappa=0.25)) == [[4, 0, 0, 0]]
    for name, function, message in (
        ("abs_pmi", lambda long_nll: long_nll, "choose another, of letters"),
        ("a/b", lambda long_nll: long_nll, "choose another, of letters"),
        ("other", lambda logits: logits, "takes logits, which is unknown; choose from long_nll, short_nll"),
    ):
        with pytest.raises(ValueError, match=message):
            weighting(name)(function)
    with pytest.raises(ValidationError, match=r"is unknown; choose from abs_pmi, .*FILE\.py:FUNCTION"):
        Weighting(score="other")


def test_a_function_in_a_file_is_pinned_to_its_contents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(CODE)
    chosen = Weighting(score="mine.py:gain", postprocessing="raw", gamma=3.0)
    assert chosen.score.startswith(f"{file}:gain@")
    assert chosen.label == "gain"
    assert chosen.needs_short_nll
    assert weights(chosen) == [[6, 0, 0, 1.5]]
    assert weights(Weighting(score="mine.py:gain", postprocessing="raw")) == [[4, 0, 0, 1]]
    file.write_text(CODE.replace("2.0", "5.0"))
    assert weights(chosen) == [[6, 0, 0, 1.5]], "what this process has read stays"
    again = Weighting(score="mine.py:gain", postprocessing="raw")
    assert weights(again) == [[10, 0, 0, 2.5]]
    find_score.__globals__["_in_file"].cache_clear()
    with pytest.raises(ValueError, match=r"mine\.py: has changed since the run was planned; run again"):
        find_score(chosen.score)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("nowhere.py:gain", CODE, "nowhere.py: cannot be read"),
        ("mine.py:lost", CODE, "mine.py: has no function 'lost'"),
        ("mine.py:strange", CODE, "mine.py: has no function 'strange'"),
        ("mine.py:gain", "def gain(x, y): return x", "gain: takes x, which is unknown; choose from"),
        ("mine.py:gain", "def gain(:", "mine.py: SyntaxError"),
        ("mine.py:gain", "import nothing_there", r"mine.py: ModuleNotFoundError: No module named .* \(line 1\)"),
        ("mine.py:gain", "import sys; sys.exit(0)", "mine.py: SystemExit"),
        ("mine.py:gain", "def gain(): return 1", r"mine.py:gain: score .* is not a tensor \[B, M\] but int"),
        ("mine.py:gain", "def gain(long_nll): return long_nll[0]", r"mine.py:gain: score .* has shape \(8,\)"),
        ("mine.py:gain", "def gain(long_nll): exit(0)", r"score .*/mine.py:gain: SystemExit: 0 \(line 1\)"),
        ("mine.py:gain", "\ndef gain(long_nll): return long_nll.no", r"mine.py:gain: AttributeError: .* \(line 2\)"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path, monkeypatch, name, code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(ValidationError, match=message):
        Weighting(score=name, postprocessing="raw")


def test_a_function_that_works_in_place_changes_nothing_but_its_result(tmp_path, own):
    (tmp_path / "mine.py").write_text(
        "def mine(long_nll, short_nll, position, position_counts):\n"
        "    position.zero_(), position_counts.zero_()\n"
        "    return long_nll.sub_(short_nll).abs_()\n"
    )
    weighting("in_place")(lambda long_nll, short_nll: long_nll.sub_(short_nll).abs_())
    named_ours = functools.wraps(find_score("abs_pmi").function)
    weighting("wrapped")(named_ours(lambda long_nll, short_nll: long_nll.sub_(short_nll).abs_()))
    given = [tensor.clone() for tensor in (LONG, SHORT, torch.tensor([[1.0, 2.0, 1.0, 2.0]]), torch.ones(5))]
    before = [tensor.clone() for tensor in given]
    for score in (f"{tmp_path}/mine.py:mine", "in_place", "wrapped"):
        chosen = Weighting(score=score, postprocessing="raw")
        more = {"position": given[2], "position_counts": given[3], "sequence_ids": [0], "seed": 0}
        assert token_weights(*given[:2], chosen, **more).tolist() == [[2, 3, 0, 0.5]]
        token_scores(chosen.score, *given[:2], position=given[2], position_counts=given[3])  # as the stage `weigh` does
        assert all(map(torch.equal, given, before))


def test_weights_without_a_scorer(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    chosen = Weighting(score=f"{tmp_path}/mine.py:late", postprocessing="dense", lambda_=0)
    assert not chosen.needs_short_nll
    torch.testing.assert_close(torch.tensor(weights(chosen)), torch.tensor([[0.4, 0.8, 1.2, 1.6]]))
    scored = torch.tensor([[False, True, False, True]])
    assert weights(chosen, scored=scored) == [[0, pytest.approx(2 / 3), 0, pytest.approx(4 / 3)]]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("long_nll[:, 1:]", "has shape"),
        ("-long_nll", r"a score is below 0 \(-1\)"),
        ("long_nll / 0", r"not finite \(inf\)"),
    ],
)
def test_what_is_no_weight_is_refused(tmp_path, result, message):
    (tmp_path / "mine.py").write_text(f"def mine(long_nll): return {result}")
    with pytest.raises((ValueError, FloatingPointError), match=message):
        weights(Weighting(score=f"{tmp_path}/mine.py:mine", postprocessing="raw"))


def test_a_file_prints_where_messages_go_and_gamma_is_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("print('hello')\ndef power(long_nll, gamma): return long_nll**gamma\n")
    with pytest.raises(ValidationError, match=r"mine\.py:power: score .* needs gamma"):
        Weighting(score="mine.py:power", postprocessing="raw")
    assert Weighting(score="mine.py:power", postprocessing="raw", gamma=2.0).inputs == ("long_nll", "gamma")
    assert capsys.readouterr() == ("", "hello\n")
