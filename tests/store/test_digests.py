"""Digests of files are kept beside the store, and read again only where a file was written since."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokenweight.pipeline import digests
from tokenweight.pipeline.digests import Digests


def test_a_file_is_read_again_where_its_size_or_its_time_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(digests, "file_sha256", lambda path: read.append(path.read_text()) or f"of {read[-1]}")
    file, store = tmp_path / "a.txt", tmp_path / "store"
    file.write_text("")
    planned = Digests(store)
    planned.digest(file)
    planned.save()
    assert not store.exists()  # a plan makes none
    store.mkdir()
    read.clear()
    for text, second in (("one", 1), ("one", 1), ("two", 2), ("three", 2), ("three", 2)):
        file.write_text(text)
        os.utime(file, (second, second))
        for _ in range(2):  # the second has what the first saved
            kept = Digests(store)
            assert kept.digest(file) == kept.digest(file) == f"of {text}"
            kept.save()
    assert read == ["one", "two", "three"]
