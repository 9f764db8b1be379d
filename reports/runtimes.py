"""Table 6, run time as a factor of uniform weighting: from measurements of benchmarks/, beside the paper's.

No recipe of the store has these numbers: a step's time does not depend on what a model has learned, so they are
measured with random weights on whatever GPUs there are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from tokenweight.errors import UserError
from tokenweight.reports.model import Cell, Note, PaperNumber, Report, ReportColumn, ReportRow
from tokenweight.reports.paper.numbers import paper_number

TARGET = "table-6"
PAPER_COLUMN = "time-factor"


class RuntimeFile(BaseModel):
    """What benchmarks/training_cost.py and benchmarks/zero3.py write of one model on one machine; more keys may follow.

    `ratios`: seconds over those of the uniform step in the same run, by variant.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    model: str
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


_READY, _SCORING = "frozen, scores ready", "scoring alone"
_WEIGHTINGS = (  # key in the paper's data, label (the paper's where it has it), variants whose ratios add up
    ("uniform", "Uniform", ("uniform",)),
    ("unfrozen", "Unfrozen", ("unfrozen dense",)),
    ("unfrozen-fp8", "Unfrozen, fp8 scoring", ("unfrozen dense, fp8 scoring",)),
    ("unfrozen-sparse", "Unfrozen Sparse 0.2", ("unfrozen sparse 0.2",)),
    ("frozen", "Frozen", (_READY, _SCORING)),
    ("frozen-w2s", "Frozen W2S", (_READY, "scoring alone, llama3.2-1b")),
    ("frozen-ready", "Frozen, scores ready", (_READY,)),
)
_MODELS = {"llama3-8b": ("llama-3-8b", "Llama 3 8B"), "phi-2": ("phi-2", "Phi 2 2.7B")}  # key there, and label
_GIVE = "give what benchmarks/training_cost.py or benchmarks/zero3.py wrote with --out"


def read_runtimes(paths: Iterable[Path]) -> tuple[RuntimeFile, ...]:
    """Read measurements; UserError for a file that is none, or a model that was measured twice in one setup."""
    found = []
    for path in paths:
        try:
            measured = RuntimeFile.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); {_GIVE}") from None
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            wrong = f"{place}: {error.errors()[0]['msg']}" if place else "not an object with keys"
            raise UserError(f"{path}: no measurement of run time ({wrong}); {_GIVE}") from None
        except ValueError:
            raise UserError(f"{path}: no JSON; {_GIVE}") from None
        if measured.model not in _MODELS:
            raise UserError(f"{path}: model {measured.model!r} is not in Table 6; give files of {', '.join(_MODELS)}")
        found.append(measured)
    if not found:
        raise UserError(f"no files; {_GIVE}")
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
    for model, (model_key, group) in _MODELS.items():
        for weighting, label, variants in _WEIGHTINGS:
            key = f"{model_key}-{weighting}"
            paper = paper_number(TARGET, key, PAPER_COLUMN)
            if not paper and (key == "phi-2-frozen-w2s" or not measured.issuperset(variants)):
                continue
            last = key == "llama-3-8b-frozen-ready"
            cells = (_cell(group, variants, paper, by_place.get((model, setup)), setup, marks) for setup in setups)
            rows.append(
                ReportRow(
                    key=key,
                    group=group,
                    label=label,
                    paper_label=label,
                    recipe="",
                    rule_below="full" if last else None,
                    cells=tuple(cells),
                )
            )
    column = ReportColumn(
        key="",
        label="",
        group="",
        decimals=3,
        signed=False,
        paper_column=PAPER_COLUMN,
        paper_label="Time factor",
    )
    return Report(
        target=TARGET,
        title="Run time as a factor of uniform weighting, by setup",
        paper_place="Table 6",
        scale="paper",
        stub=("Model", "Loss"),
        columns=tuple(column.model_copy(update={"key": setup, "label": setup}) for setup in setups),
        rows=tuple(rows),
        notes=(
            *(Note(mark=None, text=text) for text in (*_GENERAL_NOTES, *map(_about, files))),
            *(Note(mark=mark, text=text) for text, mark in marks.items()),
        ),
    )


def _cell(
    model: str,
    variants: Sequence[str],
    paper: PaperNumber | None,
    file: RuntimeFile | None,
    setup: str,
    marks: dict[str, int],
) -> Cell:
    absent = [] if file is None else [name for name in variants if name not in file.ratios]
    if file is None or absent:
        reason = f"Not measured on {setup}: {', '.join(absent) or model}."
        return Cell(status="missing", marks=(marks.setdefault(reason, len(marks) + 1),), paper=paper)
    value = sum(file.ratios[name] for name in variants)
    return Cell(status="complete", value=value, n=file.timed_steps, n_expected=file.timed_steps, paper=paper)


_GENERAL_NOTES = (
    "Seconds of a step over those of a uniform step in the same run; random weights. A sample is a timed step.",
    "The paper's numbers are of 8 A100 80GB GPUs (Appendix B, Runtime Analysis).",
    "Frozen, as in the paper, has the scoring of the sequences it trains on in it; scores ready has not.",
)


def _about(file: RuntimeFile) -> str:
    """What a uniform step reaches; tokens a second and memory only where complete steps were timed."""
    seconds, peak = file.seconds.get("uniform"), file.peak_gib.get("uniform")
    reached = [
        f"{file.gpus * file.accumulation * file.long_tokens / seconds:,.0f} tokens/s"
        if file.layers and seconds
        else "",
        f"MFU {file.mfu_uniform:.3f}" if file.mfu_uniform is not None else "",
        f"{peak:.1f} GiB of each GPU" if file.layers and peak else "",
    ]
    uniform = ", ".join(filter(None, reached))
    versions = ", ".join(f"{name} {version}" for name, version in sorted(file.versions.items()))
    return (
        f"{_MODELS[file.model][1]} on {file.setup}: {file.long_tokens} tokens"
        f"{f', uniform: {uniform}' if uniform else ''}; {versions}."
    )
