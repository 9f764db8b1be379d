"""Artifacts behind numbers: their records, and the artifacts that those were made from."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from tokenweight.pipeline.store import read_record


class Artifacts:
    """Records of a store by address, each read once, and their numbers on the page."""

    def __init__(self, store_root: Path) -> None:
        self.root = store_root
        self.records: dict[str, dict[str, Any]] = {}
        self._without_record: set[str] = set()
        # All but evaluations (nothing is made from those), by the digits of the fingerprint that end their name.
        self._by_prefix: dict[str, list[str]] = {}
        for path in sorted(store_root.glob("*/*-*")):
            if path.parent.name != "evaluate" and path.is_dir() and not path.name.startswith("."):
                address = f"{path.parent.name}/{path.name}"
                self._by_prefix.setdefault(path.name.rpartition("-")[2], []).append(address)

    def add(self, address: str) -> bool:
        """Read an artifact's record and those of all that it was made from; False where it has none."""
        if address in self.records:
            return True
        place = PurePosixPath(address)
        outside = place.is_absolute() or ".." in place.parts
        record = None if outside or address in self._without_record else read_record(self.root / address)
        if record is None:
            self._without_record.add(address)
            return False
        self.records[address] = record
        for fingerprint in mapping(record.get("inputs")).values():
            self.address_of(fingerprint)
        return True

    def address_of(self, fingerprint: Any) -> str | None:
        """Address of what an artifact was made from; None where no artifact in the store has that fingerprint."""
        for address in self._by_prefix.get(str(fingerprint)[:8], ()):
            if self.add(address) and self.records[address].get("fingerprint") == fingerprint:
                return address
        return None


def mapping(value: Any) -> dict[str, Any]:
    """A record's field that should be a mapping; {} where it is none."""
    return value if isinstance(value, dict) else {}
