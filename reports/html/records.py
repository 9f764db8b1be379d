"""Records behind numbers, and those of what their artifacts were made from."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from tokenweight.pipeline.store import read_record


class Records:
    """Records of a store by address, each read once; config, inputs and outputs are mappings even in a damaged one."""

    def __init__(self, store_root: Path) -> None:
        self.root = store_root
        self.known: dict[str, dict[str, Any]] = {}
        self._without: set[str] = set()
        # All but evaluations (nothing is made from those), by the digits of the fingerprint that end their name.
        self._by_prefix: dict[str, list[str]] = {}
        for path in sorted(store_root.glob("*/*-*")):
            if path.parent.name != "evaluate" and path.is_dir() and not path.name.startswith("."):
                address = f"{path.parent.name}/{path.name}"
                self._by_prefix.setdefault(path.name.rpartition("-")[2], []).append(address)

    def add(self, address: str) -> bool:
        """Read an artifact's record and those of all that it was made from; False where it has none."""
        if address in self.known:
            return True
        place = PurePosixPath(address)
        outside = place.is_absolute() or ".." in place.parts
        record = None if outside or address in self._without else read_record(self.root / address)
        if record is None:
            self._without.add(address)
            return False
        fields = {name: record.get(name) for name in ("config", "inputs", "outputs")}
        self.known[address] = record | {name: held if isinstance(held, dict) else {} for name, held in fields.items()}
        for fingerprint in self.known[address]["inputs"].values():
            self.address_of(fingerprint)
        return True

    def address_of(self, fingerprint: Any) -> str | None:
        """Address of what an artifact was made from; None where no artifact in the store has that fingerprint."""
        for address in self._by_prefix.get(str(fingerprint)[:8], ()):
            if self.add(address) and self.known[address].get("fingerprint") == fingerprint:
                return address
        return None
