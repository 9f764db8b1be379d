"""What tests of benchmarks with prompts made beforehand share: files of rows, and the prompts of a unit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenweight.evaluation.benchmark import Unit
from tokenweight.evaluation.samples import read_prompts, write_prompts
from tokenweight.evaluation.units import BENCHMARKS
from tokenweight.recipes.schema import Evaluation

Json = dict[str, Any]


def write(file: Path, rows: Iterator[Json] | list[Json]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def prepared(unit: Unit, given: Evaluation, tokenizer: Path, out: Path) -> list[Json]:
    write_prompts(BENCHMARKS[unit.benchmark].prepare(unit, given, tokenizer, 0)[0], out)
    return list(read_prompts(out))
