"""Table 6, run time as a factor of uniform weighting: from measurements of benchmarks/, beside the paper's.

No recipe of the store has these numbers: a step's time does not depend on what a model has learned, so they are
measured with random weights on whatever GPUs there are.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, PositiveFloat, PositiveInt

from tokenweight.errors import UserError
from tokenweight.recipes.recipe import read_model
from tokenweight.reports.display import words
from tokenweight.reports.model import Cell, Report, ReportColumn, ReportRow, notes
from tokenweight.reports.paper.numbers import paper_number

TARGET = "table-6"
PAPER_COLUMN = "time-factor"


class RuntimeFile(BaseModel, frozen=True, extra="ignore", allow_inf_nan=False):
    """What benchmarks/training_cost.py and benchmarks/zero3.py write of one model on one machine; more keys may follow.

    `ratios`: seconds over those of the uniform step in the same run, by variant.
    """

    model: Literal["llama3-8b", "phi-2"]  # those of Table 6
    setup: str  # heading of its column, e.g. "2 x NVIDIA H200, ZeRO-3"
    timed_steps: PositiveInt  # of each variant, after warm-up
    ratios: dict[str, PositiveFloat]
    mfu_uniform: PositiveFloat | None = None
    long_tokens: PositiveInt
    gpus: PositiveInt = 1
    accumulation: PositiveInt = 1  # sequences on each GPU in a step
    layers: int | None = None  # depth of the steps that were timed; None where whole steps were not
    seconds: dict[str, float | None] = Field(default_factory=dict)
    peak_gib: dict[str, float | None] = Field(default_factory=dict)
    versions: dict[str, str] = Field(min_length=1)


# The report's headings, models, notes; rows with the paper's keys (and labels, where it has them) and the variants whose ratios
# add up.
_TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("runtimes.json").read_text("utf-8"))
_MODELS: dict[str, str] = _TABLE["models"]
_GIVE = "give what benchmarks/training_cost.py or benchmarks/zero3.py wrote with --out"


def read_runtimes(paths: Iterable[Path]) -> tuple[RuntimeFile, ...]:
    """Read measurements; UserError for a file that is none, or a model that was measured twice in one setup."""
    found = [read_model(RuntimeFile, path, "a measurement of run time", _GIVE) for path in paths]
    (model, setup), times = Counter((file.model, file.setup) for file in found).most_common(1)[0]
    if times > 1:
        raise UserError(f"{times} files measure {model} on {setup!r}; give one of them")
    return tuple(found)


def runtime_report(files: Sequence[RuntimeFile]) -> Report:
    """Table 6 with one column a setup: a row that nothing has measured is shown where the paper has it."""
    setups = list(dict.fromkeys(file.setup for file in files))
    by_place = {(file.model, file.setup): file for file in files}
    measured = {name for file in files for name in file.ratios}
    marks: dict[str, int] = {}

    rows = []
    for row in _TABLE["rows"]:
        key, model, variants = row["key"], _MODELS[row["model"]], row["variants"]
        paper = paper_number(TARGET, key, PAPER_COLUMN)
        if not (paper or measured.issuperset(variants)):
            continue
        cells = []
        for setup in setups:
            file = by_place.get((row["model"], setup))
            absent = [name for name in variants if file and name not in file.ratios]
            if file and not absent:
                value, n = sum(file.ratios[name] for name in variants), file.timed_steps
                cells.append(Cell(status="complete", value=value, n=n, n_expected=n, paper=paper))
            else:
                reason = f"Not measured on {setup}: {', '.join(absent) or model}."
                mark = marks.setdefault(reason, len(marks) + 1)
                cells.append(Cell(status="missing", marks=(mark,), paper=paper))
        looks = {"label": row["label"], "paper_label": row["label"], "rule_below": row.get("rule_below")}
        rows.append(ReportRow(key=key, group=model, **looks, cells=tuple(cells)))
    return Report(
        target=TARGET,
        **_TABLE["report"],
        columns=tuple(
            ReportColumn(key=setup, label=setup, decimals=3, paper_column=PAPER_COLUMN, paper_label="Time factor")
            for setup in setups
        ),
        rows=tuple(rows),
        notes=notes([*_TABLE["notes"], *(words("runtime", file, _MODELS[file.model]) for file in files)], marks),
    )
