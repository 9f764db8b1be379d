"""Models that say nothing, the prompt, one token for ever or no number are flagged or refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from faults_laboratory import EXECUTION, Laboratory
from safetensors.torch import load_file, save_file

from tokenweight.errors import UserError
from tokenweight.evaluation.hf_model import EvaluatedModel
from tokenweight.pipeline.digests import file_sha256
from tokenweight.pipeline.stage import Artifact
from tokenweight.pipeline.store import Store, read_record
from tokenweight.tasks.pieces import make_piece

Tally = Callable[[str, str, str], None]
ANSWERS: dict[str, Callable[[str], str]] = {
    "nothing": lambda prompt: " \n",
    "the prompt": lambda prompt: prompt,
    "one token for ever": lambda prompt: " the" * 64,
}


def evaluation(laboratory: Laboratory, benchmark: str) -> Artifact:
    """The first row's."""
    evaluations = (one for one in laboratory.artifacts if one.stage.name == "evaluate")
    return next(one for one in evaluations if one.identity.config["unit"]["benchmark"] == benchmark)


@pytest.fixture
def emptied(laboratory: Laboratory, tmp_path: Path) -> Laboratory:
    """A copy of the laboratory's store without what was evaluated."""
    shutil.copytree(laboratory.store.root, tmp_path / "store", ignore=shutil.ignore_patterns("evaluate"))
    return Laboratory(Store(tmp_path / "store"), laboratory.planned)


@pytest.mark.parametrize("says", ANSWERS)
def test_a_model_that_says_nothing_of_use_is_flagged(
    says: str, laboratory: Laboratory, emptied: Laboratory, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        EvaluatedModel, "generate_until", lambda self, instances, **_: [ANSWERS[says](one.args[0]) for one in instances]
    )
    unit = evaluation(laboratory, "longbench")
    make_piece([unit], emptied.store, EXECUTION)
    facts = (read_record(emptied.path(unit)) or {})["facts"]
    of_worth = facts["mean_score"] > 0  # all_zero and all_equal need more samples than the miniature has
    tally(
        "poison", f"a model says {says}", "flagged" if facts["flags"] else "false numbers" if of_worth else "scored 0"
    )


def test_a_model_of_no_numbers_is_refused(laboratory: Laboratory, emptied: Laboratory, tally: Tally) -> None:
    """Its record says that nothing is wrong with it."""
    unit = evaluation(laboratory, "perplexity")
    trained = emptied.path(unit.inputs["checkpoint"])
    file = trained / "model" / "model.safetensors"
    weights = {name: tensor * float("nan") for name, tensor in load_file(file).items()}
    file.unlink()
    save_file(weights, file, {"format": "pt"})
    record = read_record(trained) or {}
    record["outputs"]["model/model.safetensors"] = {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
    (trained / "record.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="is not finite") as raised:
        make_piece([unit], emptied.store, EXECUTION)
    assert "\n" not in str(raised.value)
    assert not emptied.path(unit).exists()
    tally("poison", "a model of NaN", "refused")
