"""Predictions that others stored, scored again without a model, beside what was published (Section 4, Evaluation).

LongBench's folders (LongBench-E's and LCEG's too), RULER's results, BIG-Bench-Hard's official outputs, lm-eval's logs of it,
and this project's own rows of it. All that is below a directory is scored by run: a folder, or a store's checkpoint.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.bbh import BBH_TASKS, strict_answer, tolerant_score
from tokenweight.evaluation.data import json_objects, table
from tokenweight.evaluation.longbench import TASKS, FirstLine, score_longbench, unscorable
from tokenweight.evaluation.rows import ROWS_NAME, read_rows
from tokenweight.evaluation.ruler.benchmark import Ruler
from tokenweight.evaluation.ruler.tasks import TASKS as RULER_TASKS
from tokenweight.recipes.schema import Evaluation

LENGTHS: dict[str, tuple[float, float]] = table("rescoring")["longbench_lengths_words"]
LONGBENCH_E = list(LENGTHS)[:3]
NAMES: dict[str, Collection[str]] = {"longbench": TASKS, "ruler": RULER_TASKS, "bbh": BBH_TASKS}
SUBMISSION = "submission.csv"  # RULER's predictions of all tasks, without references
Files = dict[str, Path]  # of a run, by task
Tasks = dict[str, dict[str, Any]]  # what is known of each: n, scores in percent; published, difference


def rescore(benchmark: str, directory: Path, **options: Any) -> dict[str, dict[str, Any]]:
    """By run: its tasks in official order, their averages, what is missing or not scored, and where every score is 0.

    Options: `first_line` of LongBench; `data` of RULER, its samples. UserError: no such directory, no file of a task, two
    of one run and task, a line or file that cannot be scored (named), published numbers that cannot be read.
    """
    found, readers = {}, {"longbench": _longbench, "ruler": _ruler, "bbh": _bbh}
    for run, files in _runs_below(benchmark, directory).items():
        tasks, averages = readers[benchmark](files, **options)  # type: ignore[operator]
        others = {path.name for path in next(iter(files.values())).parent.glob("*.jsonl")}
        found[run] = {
            "tasks": tasks,
            **averages,
            "missing": [name for name in NAMES[benchmark] if name not in tasks],
            "not_scored": sorted(others - {path.name for path in files.values()}),
            "all_zero": [name for name, task in tasks.items() if not task.get("score", task.get("tolerant"))],
        }
    return found


def _runs_below(benchmark: str, directory: Path) -> dict[str, Files]:
    if not directory.is_dir():
        raise UserError(f"{directory}: is not a directory; give the folder that holds predictions")
    layout, names = table("rescoring")["layouts"][benchmark], "|".join(NAMES[benchmark])
    pattern, artifact = layout["files"].replace("NAMES", names), rf"(?P<run>.+)--bbh-(?P<task>{names})-[0-9a-f]+"
    found = defaultdict[str, Files](dict)
    for path in sorted(directory.rglob("*")):
        place, match = str(path.parent.relative_to(directory)), re.fullmatch(pattern, path.name)
        run = directory.resolve().name if place == "." else place
        if benchmark == "bbh" and path.name == ROWS_NAME and (match := re.fullmatch(artifact, path.parent.name)):
            run = match["run"]
        if match and (other := found[run].setdefault(match["task"] or SUBMISSION, path)) != path:
            raise UserError(f"{run}: {other} and {path} both hold {match['task']}; keep one evaluation")
    if not found:
        raise UserError(f"{directory}: holds no {layout['called']}; give a folder of predictions")
    return dict(sorted(found.items()))


def _lines(path: Path, *fields: str, once: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's place and object. UserError: there is none, one lacks a field, or two are equal in the fields `once`."""
    seen, where = set[tuple[str, ...]](), ""
    for number, row in json_objects(path, *fields):
        where, sample = f"{path}, line {number}", tuple(str(row.get(field)) for field in once)
        if once and sample in seen:
            raise UserError(f"{where}: sample {sample[0]} occurs twice; give the outputs of one run")
        seen.add(sample)
        yield where, row
    if not where:
        raise UserError(f"{path}: holds no sample; remove it or give its outputs")


def _text(where: str, row: Mapping[str, Any], field: str) -> str:
    if not isinstance(text := row[field], str):
        raise UserError(f"{where}: {field} is not a text; give it as the model wrote it")
    return text


def _references(where: str, row: Mapping[str, Any]) -> list[str]:
    texts = row["outputs"]
    if not (isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts)):
        raise UserError(f"{where}: outputs is not a list of texts, one at least; give RULER's references")
    return texts


def _entry(scores: Sequence[float], published: float | None) -> dict[str, Any]:
    """Number and mean in percent of scores in 0..1; `difference` from a published mean to two decimals, as that has."""
    score = 100 * fmean(scores)
    compared = (
        {} if published is None else {"published": published, "difference": round(round(score, 2) - published, 2)}
    )
    return {"n": len(scores), "score": score, **compared}


def mean(scores: Mapping[str, float], names: Collection[str] = TASKS) -> float | None:
    """Plain mean over tasks, LongBench's 16 unless named; None where one is missing."""
    return fmean(scores[name] for name in names) if scores.keys() >= set(names) else None


def categories(scores: Mapping[str, float]) -> dict[str, float]:
    """The mean of each category of LongBench whose tasks are all there, in official order."""
    members = defaultdict[str, list[str]](list)
    for name, task in TASKS.items():
        members[task.category].append(name)
    return {name: found for name, of_it in members.items() if (found := mean(scores, of_it)) is not None}


def _longbench(files: Files, first_line: FirstLine = "lceg") -> tuple[Tasks, dict[str, Any]]:
    """Lines hold pred, answers, all_classes (and length in words) as LongBench's pred.py writes them; repeated ones count as
    often as they are there. By length: in LongBench-E's parts, or in those that are published."""
    read, tasks, known = dict[str, list[dict[str, Any]]](), Tasks(), published(next(iter(files.values())).parent)
    names = {name: "trec" if name.startswith("trec") else name for name in sorted(files, key=[*TASKS, *files].index)}
    for name, task in names.items():
        read[name] = []
        for where, row in _lines(files[name], "pred", "answers"):
            problem = unscorable(task, row) if isinstance(row["pred"], str) else "pred is not a text"
            if not isinstance(row.get("length") or 0, int | float):
                problem = "length is not a number"
            if problem:
                raise UserError(f"{where}: {problem}; give lines as LongBench's pred.py writes them")
            read[name].append(row)
    for name, task in names.items():  # a bad line was reported before any was scored
        given, scored = known.get(name, {}), list[tuple[float, int | None]]()
        for row in read[name]:
            _, score = score_longbench(task, row["pred"], row["answers"], row.get("all_classes"), first_line)
            scored.append((score, row.get("length")))
        lengths = {}
        for label in [label for label in LENGTHS if label in given] or LONGBENCH_E:
            least, most = LENGTHS[label]
            if part := [score for score, words in scored if words is not None and least <= words <= most]:
                lengths[label] = _entry(part, given.get(label))
        entry = _entry([score for score, _ in scored], given.get(""))
        tasks[name] = {"category": TASKS[task].category, **entry, "lengths": lengths}
    scores = {name: task["score"] for name, task in tasks.items()}
    return tasks, {"first_line": first_line, "categories": categories(scores), "mean": mean(scores)}


def published(folder: Path) -> dict[str, dict[str, float]]:
    """LongBench's scores of each task by length, "" being all lengths, in ``result.json`` (LongBench-E's is by length) and
    LCEG's ``result_by_length.json``, where these are there. UserError: one holds no numbers."""
    found = defaultdict[str, dict[str, float]](dict)
    for path in (folder / "result.json", folder / "result_by_length.json"):
        try:
            content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            for name, given in content.items():
                for label, score in (given if isinstance(given, dict) else {"": given}).items():
                    if label in ("", *LENGTHS) and score is not None and float(score) == score:  # NaN: of no sample
                        found[name][label] = float(score)
        except (ValueError, TypeError, AttributeError, OSError):
            raise UserError(f"{path}: is not a JSON object of scores by task; remove or repair it") from None
    return found


def _ruler(files: Files, data: Path | None = None) -> tuple[Tasks, dict[str, Any]]:
    """<task>.jsonl hold pred, outputs, index. The references of submission.csv are in `data` (None: in RULER's own layout,
    the folder data beside pred), <task>/validation.jsonl."""
    folder = next(iter(files.values())).parent
    outputs = _submitted(files[SUBMISSION], data or folder.parent / "data") if SUBMISSION in files else {}
    for task, path in files.items():
        if task != SUBMISSION:
            rows = _lines(path, "pred", "outputs", "index", once=("index",))
            outputs[task] = [(_text(where, row, "pred"), _references(where, row)) for where, row in rows]
    known = dict[str, float]()
    for path in sorted(folder.glob("summary*.csv")):  # rows Tasks, Score, Nulls
        try:
            columns = pd.read_csv(path, index_col=0).T
            known |= dict(zip(columns["Tasks"], columns["Score"].astype(float), strict=True))
        except (KeyError, ValueError):
            raise UserError(f"{path}: has no rows Tasks and Score with a number each; remove or repair it") from None
    tasks = Tasks()
    for task in (task for task in RULER_TASKS if task in outputs):
        scored = [Ruler().score(task, *one, None, Evaluation.model_construct()) for one in outputs[task]]
        nulls = sum(not one.filtered for one in scored)
        tasks[task] = {**_entry([one.score for one in scored], known.get(task)), "nulls": nulls}
    return tasks, {"mean": mean({name: task["score"] for name, task in tasks.items()}, RULER_TASKS)}


def _submitted(path: Path, data: Path) -> dict[str, list[tuple[str, list[str]]]]:
    """Predictions of each task with their references."""
    rows, found = pd.read_csv(path, dtype=str, keep_default_na=False), {}
    if list(rows) != ["Task", "ID", "Prediction"] or rows.duplicated(["Task", "ID"]).any():
        raise UserError(
            f"{path}: must hold Task, ID and Prediction, each sample once; give RULER's own file of one run"
        )
    for task, of_task in rows.groupby("Task"):
        samples = data / str(task) / "validation.jsonl"
        if not samples.exists():
            raise UserError(f"{path}: has no references, and {samples} does not exist; give their folder with --data")
        rows_of_task = _lines(samples, "index", "outputs")
        references = {str(row["index"]): _references(where, row) for where, row in rows_of_task}
        if unknown := sorted({*of_task["ID"]} - references.keys()):
            raise UserError(f"{path}: {samples} has no sample {unknown[0]}; give the samples that the model read")
        if lacking := sorted(references.keys() - {*of_task["ID"]}):
            raise UserError(
                f"{path}: lacks {len(lacking)} of {len(references)} samples of {task}, such as {lacking[0]}; give all"
            )
        found[str(task)] = [(text, references[n]) for n, text in zip(of_task["ID"], of_task["Prediction"], strict=True)]
    return found


def _bbh(files: Files) -> tuple[Tasks, dict[str, Any]]:
    """Exact match by lm-eval's strict pattern and by the tolerant one; the micro-average weighs each sample the same."""
    tasks, every = Tasks(), list[tuple[float, float]]()
    for task in (task for task in BBH_TASKS if task in files):
        outputs = _outputs(files[task])
        own = [(float(strict_answer(text) == target), tolerant_score(text, target)) for text, target in outputs]
        tasks[task], every = _patterns(own), every + own
    return tasks, {"micro_average": _patterns(every)}


def _patterns(scores: Sequence[tuple[float, float]]) -> dict[str, float]:
    strict, tolerant = (100 * fmean(kind) for kind in zip(*scores, strict=True))
    return {"strict": strict, "tolerant": tolerant, "n": len(scores)}


def _outputs(path: Path) -> list[tuple[str, str]]:
    """Output and target of each sample; in a log of lm-eval with several filters a sample is there once for each."""
    try:
        if path.name == ROWS_NAME:
            return [(row.output, json.loads(row.reference)[0]) for row in read_rows(path.parent)]
        if path.suffix == ".json":
            rows = enumerate(json.loads(path.read_text(encoding="utf-8"))["outputs"])
            return [_prediction(f"{path} output {number}", row) for number, row in rows]
    except StageError as error:
        raise UserError(str(error)) from error
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: holds no outputs with prediction and target; give the official file") from None
    if not path.name.startswith("samples_"):
        return [_prediction(where, row) for where, row in _lines(path, "prediction", "target")]
    logged = dict[Any, tuple[str, str]]()
    for where, row in _lines(path, "doc_id", "target", "resps", once=("doc_id", "filter")):
        match row["resps"]:
            case [[str(output), *_], *_]:
                logged[row["doc_id"]] = output, _text(where, row, "target")
            case _:
                raise UserError(f"{where}: resps holds no text; give a log of generated answers")
    return list(logged.values())


def _prediction(where: str, row: Mapping[str, Any]) -> tuple[str, str]:
    return _text(where, row, "prediction"), _text(where, row, "target")
