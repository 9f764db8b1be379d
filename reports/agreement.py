"""Two protocols never share a column: compare the records behind it, and say where they disagree.

The identity of code is the stage's version, which is raised whenever a change of code changes what the stage writes and
is part of every fingerprint. Commits are not compared, since most of them change nothing here: where records come from
several, or from uncommitted changes, a note says so (`origins`).
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tokenweight.pipeline.manifest import Run
from tokenweight.recipes.recipe import flatten
from tokenweight.reports.display import words
from tokenweight.reports.samples import UnitResult

# What a configuration says of one task alone; all else is the benchmark's.
_OF_A_TASK = {"metric", "generation", "fewshot", "fewshot_order", "template_version", "lengths_tokens", "task"}
_PROTOCOL = ("protocol", "scoring", "evaluation")  # parts of an evaluation's configuration
_DIGEST = "sha256:"  # how the digest of raw data begins, in the place of its path
_OF_A_ROW = ("checkpoint", "scorer")  # inputs that rows do not share; others they do where they are asked the same
_LENGTH = 40  # characters of a setting that a refusal quotes
_NOTED_VERSIONS = ("torch", "transformers", "tokenizers")


def disagreement(
    column: Mapping[Run, list[UnitResult]], name_of: Callable[[Run], str], *, same_questions: bool
) -> str | None:
    """Why the rows of a column (each with its units) cannot be compared, or None where they can; `name_of`: what they are called.

    The harness and the stage's version must be one over the whole column, within a row too; a benchmark's protocol over
    all its units. For each unit, compared over all rows that hold it: the whole protocol, digests of raw data, and,
    with `same_questions`, shared inputs and, between complete units, which questions were asked. Scores by the un-extended
    base are one among the rows of a seed, which may draw a base of its own.
    """
    held = [(run, unit) for run, units in column.items() for unit in units if unit.record]
    checks: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)  # what is compared -> where -> its settings
    of_benchmarks: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for run, unit in sorted(held, key=lambda pair: pair[1].entry.unit):
        row, name, config = name_of(run), unit.entry.unit, unit.record.get("config", {})
        where = f"{row}, {name}"
        found = {f".{key}": value for part in _PROTOCOL for key, value in flatten("", config.get(part) or {}) if key}
        protocol = {key: value for key, value in found.items() if not str(value).startswith(_DIGEST)}
        inputs = (unit.record.get("inputs") or {}).items() if same_questions else ()
        shared = {f".{key}": value for key, value in inputs if key not in _OF_A_ROW}
        if ".prepared" in shared and not unit.entry.length_tokens:  # cut to each model's context
            prepared = {".prepared": shared.pop(".prepared")}
            checks[f"{name}: prompts at a context of {config.get('context_tokens')} tokens"][row] = prepared
        if ".scores" in shared:
            checks[f"{name}: seed {run[1]}"][row] = {".scores": shared.pop(".scores")}
        checks["harness version lm-eval"][where] = {"": unit.record.get("versions", {}).get("lm-eval")}
        checks["code: stage version"][where] = {"": unit.record.get("stage_version")}
        checks[f"{name}: protocol"][row] = protocol
        checks[f"{name}: data digest"][row] = found | shared
        if same_questions and unit.status == "complete":
            checks[f"{name}: questions asked"][row] = {"": unit.questions[:8]}
        of_benchmarks[f"{unit.entry.benchmark}: protocol"][where] = {
            key: value for key, value in protocol.items() if _OF_A_TASK.isdisjoint(key.split("."))
        }
    differences = (_first_difference(what, values) for what, values in (checks | of_benchmarks).items())
    return next(filter(None, differences), None)


def origins(units: Iterable[UnitResult]) -> tuple[str, ...]:
    """Notes on what is not refused: several commits, uncommitted changes, several versions of what runs the models."""
    records = [unit.record for unit in units if unit.record]
    gits = [record.get("git") or {} for record in records]
    commits = sorted({str(git["commit"])[:8] for git in gits if git.get("commit")})
    dirty = sum(bool(git.get("dirty")) for git in gits)
    versions = {
        package: sorted({str(record.get("versions", {}).get(package)) for record in records} - {"None"})
        for package in _NOTED_VERSIONS
    }
    return tuple(filter(None, words("origins", commits, dirty, len(records), versions).splitlines()))


def _first_difference(what: str, values: Mapping[str, dict[str, Any]]) -> str | None:
    """Compare all with the first; where one differs, name the setting that does."""
    for row, value in values.items():
        first_row, first = next(iter(values.items()))
        for path in sorted(value.keys() | first.keys()) if value != first else ():
            if value.get(path) != first.get(path):
                texts = (json.dumps(side.get(path), ensure_ascii=False, default=str) for side in (first, value))
                ours, theirs = (text if len(text) <= _LENGTH else f"{text[: _LENGTH - 1]}…" for text in texts)
                return f"{what}{path} differs ({first_row}: {ours}; {row}: {theirs})"
    return None
