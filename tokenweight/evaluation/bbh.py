"""BIG-Bench-Hard by lm-eval's own bbh_cot_fewshot tasks (3 exemplars exist; the paper says 5-shot).

The main score is lm-eval's strict one; a tolerant extraction is beside it, because the strict pattern loses
"(A). " and any answer without its final full stop.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.benchmark import HubData
from tokenweight.evaluation.data import Task, json_lines, table
from tokenweight.evaluation.harness_tasks import Documents, HarnessBenchmark
from tokenweight.evaluation.rows import ROWS_NAME, read_rows
from tokenweight.evaluation.samples import Classes, Scored
from tokenweight.recipes.schema import Evaluation

BBH_TASKS = tuple(table("harness")["bbh"])
NO_ANSWER = "[invalid]"  # lm-eval's word for "the pattern matched nothing"
_STRICT = re.compile(r"(?<=the answer is )(.*)(?=.)")  # lm-eval's filter get-answer
_TOLERANT = re.compile(r"the answer is[ \t:]*([^\n]*)", re.IGNORECASE)
_OPTION = re.compile(r"\(?([A-Z])\)(?=\W|$)")
_HEDGED = re.compile(r"\(?[A-Z]\)?\s*(?:,|/|or\b|and\b)\s*\(?[A-Z]\)")  # "(A) or (B)"

_NAMES = "|".join(BBH_TASKS)
# samples_<task>_<date>.jsonl, as lm-eval names them: bbh_cot_fewshot_navigate, leaderboard_bbh_navigate and so on.
_LOG = re.compile(r"samples_(?:\w*?bbh\w*?_)?(?P<task>" + _NAMES + r")(?:_\d{4}-[^/]*)?\.jsonl")
_ARTIFACT = re.compile(r"(?P<label>.+)--bbh-(?P<task>" + _NAMES + r")-[0-9a-f]+")  # a store's evaluate/<name>


class Bbh(HarnessBenchmark):
    name = "bbh"
    metric_version = 2
    folder = "bbh/cot_fewshot"
    prefix = "bbh_cot_fewshot_"
    tasks = dict.fromkeys(BBH_TASKS, Task(metric="exact_match", greatest_mean=0.98))
    fewshot_order = "first_n of lm-eval's"
    files = ("{task}.json",)
    layout = "a directory of the 27 official JSON files"
    hub_data = HubData("SaylorTwift/bbh", "b5306be6f827cfafbb545ff5a51f96916029b0fd", "boolean_expressions", "--bbh")

    def splits(self, files: list[Path], evaluation: Evaluation) -> dict[str, Documents]:
        return {"test": read_examples(files[0])}

    def new_tokens(self, task: str, evaluation: Evaluation) -> int:
        return evaluation.bbh.max_new_tokens

    def score(self, task: str, output: str, references: list[str], classes: Classes, evaluation: Evaluation) -> Scored:
        answer = strict_answer(output)
        return Scored(answer, float(answer == references[0]), tolerant_score(output, references[0]))


def read_examples(path: Path) -> Documents:
    """Input and target of each example of one official JSON. UserError: it has another layout."""
    try:
        examples = json.loads(path.read_text(encoding="utf-8"))["examples"]
        documents = [{"input": str(example["input"]), "target": str(example["target"])} for example in examples]
    except ValueError as error:
        raise UserError(f"{path}: is not JSON ({error}); give the official file") from None
    except (KeyError, TypeError):
        raise UserError(f"{path}: not in the official layout; it must hold examples of input and target") from None
    if not documents:
        raise UserError(f"{path}: holds no example; give a complete file")
    return documents


def strict_answer(output: str) -> str:
    """What lm-eval's filter takes from an output: after "the answer is ", without the line's last character."""
    found = _STRICT.findall(output)
    return str(found[0]).strip() if found else NO_ANSWER


def tolerant_answer(output: str) -> str:
    """The same place, with or without final full stop, spaces, quotes or emphasis around it."""
    found = _TOLERANT.search(output)
    return found.group(1).strip().strip("*\"'`").rstrip(". ").strip("*\"'` ") if found else NO_ANSWER


def tolerant_score(output: str, target: str) -> float:
    """1.0 if the tolerant answer is the target; for options, "(A) 05/01/2021" and "A)" answer "(A)", and "(A) or (B)" neither."""
    answer, target = tolerant_answer(output), target.strip()
    if answer != target and re.fullmatch(r"\([A-Z]\)", target) and not _HEDGED.match(answer):
        option = _OPTION.match(answer)
        answer = f"({option.group(1) if option else answer})"
    return float(answer == target)


# --- Stored outputs, scored again: lm-eval's sample logs, or this project's per-sample rows ----------


def summary(directory: Path) -> dict[str, Any]:
    """Exact match in percent by lm-eval's strict pattern and by the tolerant one, of every run below `directory`.

    A run is a directory of lm-eval logs, or in a store of this project the checkpoint that rows are of: its tasks, its
    micro-average (a task weighs as much as it has samples), and the tasks that are missing. UserError: no such
    directory, no output of a task, two files of one run and task, or a line that cannot be scored (named).
    """
    if not directory.is_dir():
        raise UserError(f"{directory}: is no directory; give the folder that holds samples_*.jsonl or {ROWS_NAME}")
    found = defaultdict[str, dict[str, Path]](dict)
    for path in sorted([*directory.rglob("samples_*.jsonl"), *directory.rglob(ROWS_NAME)]):
        if path.name == ROWS_NAME:
            match = _ARTIFACT.fullmatch(path.parent.name)
            run = match["label"] if match else ""
        else:
            match = _LOG.fullmatch(path.name)
            run = directory.resolve().name if path.parent == directory else str(path.parent.relative_to(directory))
        if not match:
            continue
        if (other := found[run].setdefault(match["task"], path)) != path:
            raise UserError(
                f"{run}: {other} and {path} both hold {match['task']}; leave the outputs of one evaluation there"
            )
    if not found:
        raise UserError(f"{directory}: holds no samples_*.jsonl or {ROWS_NAME} of a BBH task; give a folder of outputs")
    return {run: _run(files) for run, files in sorted(found.items())}


def _run(files: dict[str, Path]) -> dict[str, Any]:
    tasks = {task: _score(files[task]) for task in BBH_TASKS if task in files}
    total = sum(task["n"] for task in tasks.values())
    average = {kind: sum(task[kind] * task["n"] for task in tasks.values()) / total for kind in ("strict", "tolerant")}
    missing = [task for task in BBH_TASKS if task not in files]
    return {"tasks": tasks, "micro_average": average | {"n": total}, "missing": missing}


def _score(path: Path) -> dict[str, Any]:
    try:
        if path.name == ROWS_NAME:
            outputs = [(row.output, json.loads(row.reference)[0]) for row in read_rows(path.parent)]
        else:
            outputs = list(dict(_logged(path)).values())
    except StageError as error:
        raise UserError(str(error)) from error
    if not outputs:
        raise UserError(f"{path}: holds no sample; remove it or give its outputs")
    strict = fmean(float(strict_answer(output) == target) for output, target in outputs)
    tolerant = fmean(tolerant_score(output, target) for output, target in outputs)
    return {"strict": 100 * strict, "tolerant": 100 * tolerant, "n": len(outputs)}


def _logged(path: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Output and target of each sample of a log; one with several filters holds a sample once for each."""
    seen: set[tuple[int, str]] = set()
    for number, row in json_lines(path, "doc_id", "target", "resps"):
        where, sample = f"{path} line {number}", row["doc_id"]
        match row["resps"]:
            case [[str(output), *_], *_]:
                yield sample, (output, str(row["target"]))
            case _:
                raise UserError(f"{where}: resps holds no text; expected a log of generated answers")
        if (sample, name := str(row.get("filter"))) in seen:
            raise UserError(f"{where}: sample {sample} is there twice; was the log appended to? give one run's")
        seen.add((sample, name))
