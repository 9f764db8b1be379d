import math
from pathlib import Path

import pytest

from tokenweight.pipeline.stage import Identity, canonical_json


def test_canonical_json_ignores_key_order() -> None:
    assert canonical_json({"b": 1, "a": [1.5, None, True]}) == canonical_json({"a": [1.5, None, True], "b": 1})


@pytest.mark.parametrize("value", [{1, 2}, Path("x"), math.nan, math.inf, b"x", object()])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"not JSON serializable|not JSON compliant"):
        canonical_json({"config": {"x": value}})


def test_fingerprint_changes_with_every_part_of_the_identity() -> None:
    base = Identity("train", 1, "m", {"steps": 3}, {"chunks": "aa"})
    others = [
        Identity("score", 1, "m", {"steps": 3}, {"chunks": "aa"}),
        Identity("train", 2, "m", {"steps": 3}, {"chunks": "aa"}),
        Identity("train", 1, "m", {"steps": 4}, {"chunks": "aa"}),
        Identity("train", 1, "m", {"steps": 3}, {"chunks": "ab"}),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_fingerprint_is_the_same_in_every_process() -> None:
    identity = Identity("chunk", 1, "novel", {"seed": 1, "lengths": [1, 2]}, {"tokenizer": "ff"})
    assert identity.fingerprint == "d05295478fa08a432229214805405ea1883fe953f4f403050683e0f89dc5aedd"
    assert identity.address == f"chunk/novel-{identity.fingerprint[:8]}"


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", ".hidden"])
def test_names_that_cannot_be_addresses_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not usable"):
        Identity("chunk", 1, name, {})
