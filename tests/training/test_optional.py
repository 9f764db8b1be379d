"""Optional rooms may be deleted: asking for one that is gone is one line."""

import sys

import pytest
from training_calls import train

from tokenweight.errors import UserError
from tokenweight.optional import by_parity, optional_room
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Scorer, Weighting
from tokenweight.weighting.weights import sparse

ROOMS = ("fp8", "authors_compat")
SPARSE = Weighting(postprocessing="sparse", kappa=0.3)


@pytest.fixture(autouse=True)
def deleted(monkeypatch):
    for room in ROOMS:
        monkeypatch.setitem(sys.modules, f"tokenweight.{room}", None)


def test_a_training_works_without_them(make_request, unfrozen, tmp_path):
    train(make_request(steps=1, weighting=SPARSE, scorer=unfrozen), tmp_path, Execution(device="cpu"), no_progress)


def test_asking_for_them_is_one_line(make_request, tmp_path):
    fp8 = Scorer(kind="unfrozen", short_tokens=16, stride_tokens=12, precision="fp8")
    with pytest.raises(UserError, match=r"^scorer.precision: needs tokenweight/fp8, which is not installed; leave"):
        train(make_request(weighting=SPARSE, scorer=fp8), tmp_path, Execution(device="cpu"), no_progress)
    with pytest.raises(UserError, match=r"^parity: needs tokenweight/authors_compat, which is not installed"):
        by_parity("authors", sparse)
    assert by_parity("paper", sparse) is sparse


def test_an_error_inside_a_room_is_not_hidden(monkeypatch):
    def broken(name):
        raise ModuleNotFoundError("no torch", name="torch")

    monkeypatch.delitem(sys.modules, "tokenweight.fp8")  # there
    monkeypatch.setattr("tokenweight.optional.import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="no torch"):
        optional_room("fp8", "scorer.precision")
