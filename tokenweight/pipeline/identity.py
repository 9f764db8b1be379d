"""Fingerprints: the identity of a stage's output (architecture: identity and reuse, rule 1)."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


def canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces; raises TypeError on anything without a canonical form."""
    _check(value, "value")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def _check(value: Any, where: str) -> None:
    if value is None or isinstance(value, bool | int | str):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{where}: {value!r} has no canonical form")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            _check(item, f"{where}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: key {key!r} is not a string")
            _check(item, f"{where}.{key}")
    else:
        raise TypeError(f"{where}: {type(value).__name__} has no canonical form")


@dataclass(frozen=True)
class Identity:
    """What makes an artifact itself: stage and version, its part of the recipe, the fingerprints of its inputs.

    `name` is the readable part of the address; it must be a function of `config`, so that equal fingerprints
    have equal addresses.
    """

    stage: str
    version: int
    name: str
    config: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", self.name):
            raise ValueError(f"name {self.name!r} is not usable in an address")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (64 hex digits) of the canonical JSON of stage, version, config and input fingerprints."""
        text = canonical_json(
            {"stage": self.stage, "version": self.version, "config": self.config, "inputs": self.inputs}
        )
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def address(self) -> str:
        """Where the artifact lives, relative to the store: `<stage>/<name>-<first 8 of the fingerprint>`."""
        return f"{self.stage}/{self.name}-{self.fingerprint[:8]}"
