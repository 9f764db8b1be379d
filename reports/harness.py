"""Results in lm-eval's layout (`--output_path --log_samples`), for programs that read that: from the samples of the store."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from math import sqrt
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenweight.files import write_files
from tokenweight.pipeline.experiment import BENCHMARKS
from tokenweight.pipeline.manifest import Manifest
from tokenweight.reports.cards import RESULTS_FOLDER, hub_results, model_table
from tokenweight.reports.samples import UnitResult, read_rows, read_samples

_COLUMNS = ("doc_id", "output", "filtered", "reference", "metric", "score", "prompt_sha256")


def write_harness_results(
    manifest: Manifest, store_root: Path, out_dir: Path, option: str, limit: int | None = None
) -> list[Path]:
    """`<out>/<model>/results_<time>.json`, a samples_<task>_<time>.jsonl for each task, .eval_results; of complete units.

    Values are in the scores' own unit, shares from 0 to 1; a task's lengths are metrics of their own, as lm-eval's RULER
    has them. The samples have digests of prompts (lm-eval's `prompt_hash`) in place of documents and prompts. Returns the paths
    of the results. `limit`: of samples, as the user gave it. UserError, which names `option`: they cannot be written.
    """
    samples, files, written = read_samples(manifest, store_root), dict[Path, str](), list[Path]()
    now = datetime.now(UTC)
    time = now.replace(tzinfo=None).isoformat().replace(":", "-")
    for entry in manifest.rows:
        units = [unit for unit in samples.units[entry.row, entry.seed] if unit.status == "complete"]
        if not units:
            continue
        settings = {key: value for key, value, _ in manifest.recipes.get(entry.recipe, ())}
        model = settings.get("base.repo_id") or manifest.label((entry.row, entry.seed))
        directory = out_dir / re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model)  # lm-eval's own rule
        found = _results(units)
        results = _about_all(units, model, now, manifest, limit)
        results |= {key: value for key, value in found.items() if key != "samples"}
        written.append(directory / f"results_{time}.json")
        files[written[-1]] = json.dumps(results, indent=2, ensure_ascii=False) + "\n"
        for task, lines in found["samples"].items():
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            files[directory / f"samples_{task}_{time}.jsonl"] = text
        if table := model_table(manifest, entry, store_root):
            for name, text in hub_results([table], store_root, None).items():
                files[directory / RESULTS_FOLDER / name] = text
    write_files(files, f"{option} {out_dir}", "another")
    return written


def _results(units: list[UnitResult]) -> dict[str, Any]:
    """What lm-eval's results have by task, and samples by task."""
    kinds = ("results", "n-samples", "configs", "versions", "n-shot", "group_subtasks", "samples")
    found: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
    for unit in units:
        config, task, key = unit.record["config"], _task(unit), _metric(unit)
        family, protocol = unit.entry.benchmark.partition(":")[0], config["protocol"]
        own = protocol["task"] if isinstance(protocol.get("task"), dict) else {}
        filtered = protocol.get("filter", BENCHMARKS[unit.entry.benchmark].filtered_by)
        table = read_rows(unit.directory, _COLUMNS)
        scores = table["score"].to_numpy()
        # As lm-eval: of the mean, from the samples' standard deviation.
        stderr = float(scores.std(ddof=1)) / sqrt(len(scores)) if len(scores) > 1 else "N/A"
        values = found["results"].setdefault(task, {"name": task, "alias": task, "sample_len": len(scores)})
        values |= {f"{key},{filtered}": float(scores.mean()), f"{key}_stderr,{filtered}": stderr}
        found["n-samples"][task] = {"original": unit.n_expected or unit.n, "effective": unit.n}
        found["configs"][task] = own or {"task": task, "tokenweight": config}
        found["versions"][task] = (own.get("metadata") or {}).get("version", protocol.get("template_version"))
        shots = (config["evaluation"].get(family) or {}).get("fewshot", protocol.get("fewshot"))
        found["n-shot"][task] = own.get("num_fewshot") or 0 if shots is None else shots
        members = found["group_subtasks"].setdefault(unit.entry.benchmark, [])
        members += [] if task in members else [task]
        found["samples"].setdefault(task, []).extend(_samples(unit, table, key, filtered))
    return found


def _task(unit: UnitResult) -> str:
    benchmark = BENCHMARKS[unit.entry.benchmark]
    return f"{benchmark.name}_{unit.entry.task}" if benchmark.prefix is None else benchmark.prefix + unit.entry.task


def _metric(unit: UnitResult) -> str:
    metric, length = unit.record["config"]["scoring"]["metric"], unit.entry.length_tokens
    if length is None:
        return str(metric)
    return f"{metric}_{length}" if BENCHMARKS[unit.entry.benchmark].one_pass else str(length)


def _samples(unit: UnitResult, table: pa.Table, key: str, filtered: str) -> Iterator[dict[str, Any]]:
    benchmark, length = BENCHMARKS[unit.entry.benchmark], unit.entry.length_tokens
    is_generated = "generation" in unit.record["config"]["protocol"]
    for row in table.to_pylist():
        references = json.loads(row["reference"])
        target = references[0] if len(references) == 1 else str(references)
        if benchmark.one_pass:  # a text was read, and nothing answered
            answers, after = [], []
        elif is_generated:
            answers, after = [[row["output"]]], [row["filtered"]]
        else:
            choices = [
                [str(part) for part in (one if isinstance(one, list) else [one])] for one in json.loads(row["output"])
            ]
            answers, after = [[choice] for choice in choices], choices
        yield {
            "doc_id": row["doc_id"],
            "doc": {} if length is None else {"max_length": length},
            "target": target,
            "arguments": {},
            "resps": answers,
            "filtered_resps": after,
            "filter": filtered,
            "metrics": [key],
            "prompt_hash": row["prompt_sha256"],
            "target_hash": sha256(target.encode()).hexdigest(),
            key: row["score"],
        }


def _about_all(
    units: list[UnitResult], model: str, now: datetime, manifest: Manifest, limit: int | None
) -> dict[str, Any]:
    record = units[0].record
    evaluation, versions = record["config"]["evaluation"], record["versions"]
    backend, precision = evaluation.get("backend", "hf"), {"bf16": "bfloat16", "fp32": "float32"}
    arguments = f"pretrained={model},dtype={precision.get(evaluation.get('precision'), 'auto')}"
    return {
        "config": {"model": backend, "model_args": arguments, "limit": limit, "gen_kwargs": None},
        "git_hash": (record.get("git") or {}).get("commit"),
        "date": now.timestamp(),
        "transformers_version": versions.get("transformers"),
        "lm_eval_version": versions.get("lm-eval"),
        "max_length": record["config"].get("context_tokens"),
        "model_source": backend,
        "model_name": model,
        "total_evaluation_time_seconds": str(sum(unit.summary.get("seconds") or 0 for unit in units)),
        "tokenweight": {"version": versions.get("tokenweight"), "experiment": manifest.name, "scale": manifest.scale},
    }
