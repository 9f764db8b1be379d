"""What each rule of LongBench's protocol is worth, on stored predictions (the library's scorer, one rule switched)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenweight.evaluation import longbench as metrics
from tokenweight.evaluation.longbench import (
    TASKS,
    LongBenchTask,
    best_score,
    score_longbench,
)
from tokenweight.evaluation.rescoring import categories, mean, published

OFFICIAL_SAMPLES = {"multifieldqa_en": 150, "lcc": 500, "repobench-p": 500}  # the other tasks have 200
SPLIT_WORDS = 8192
LCEG_SPLIT_WORDS = 8000  # LCEG's own bins end at multiples of 1,000
CHINESE = ("multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh")


@dataclass(frozen=True)
class Prediction:
    """One stored prediction with its scores in 0..1, by LongBench's own rule (`thudm`) unless a rule is named."""

    output: str
    references: list[str]
    all_classes: list[str] | None
    length_words: int
    rules: dict[str, float]
    first_reference: float

    @property
    def score(self) -> float:
        return self.rules["thudm"]


def lm_eval_text(spec: LongBenchTask, output: str) -> str:
    """What lm-eval 0.4.13 scores: few-shot tasks stop at the first line break, code skips blank lines, others strip."""
    if spec.category == "code_completion":
        return "\n".join(line for line in output.split("\n") if line.strip())
    return (output.split("\n")[0] if spec.category == "few_shot_learning" else output).strip()


def indel_ratio(one: str, other: str) -> float:
    """Similarity 2 LCS / (sum of lengths): what python-Levenshtein's and rapidfuzz's ratio is."""
    row = [0] * (len(other) + 1)
    for character in one:
        diagonal = 0
        for i, candidate in enumerate(other, start=1):
            diagonal, row[i] = row[i], diagonal + 1 if character == candidate else max(row[i], row[i - 1])
    return 2 * row[-1] / (len(one) + len(other))


def indel_similarity(prediction: str, reference: str) -> float:
    """`code_similarity` as it is where python-Levenshtein is installed."""
    line = metrics.code_line(prediction)
    if not line or not reference:
        return float(line == reference)
    return round(100 * indel_ratio(line, reference)) / 100


def predictions(spec: LongBenchTask, path: Path) -> list[Prediction]:
    """Predictions of one task, each scored by every rule (a text that two rules share is scored once)."""

    def scored(row: dict[str, Any]) -> Prediction:
        output, references, classes = row["pred"], row["answers"], row.get("all_classes")
        filtered, thudm = score_longbench(spec.name, output, references, classes, "thudm")
        known = {filtered: thudm}

        def of(text: str) -> float:
            if text not in known:
                known[text] = best_score(spec, text, references, classes)
            return known[text]

        lceg = spec.scored_part(output, "lceg")
        rules = {"lceg": of(lceg), "thudm": thudm, "none": of(output), "lm_eval": of(lm_eval_text(spec, output))}
        first = best_score(spec, filtered, references[:1], classes) if len(references) > 1 else thudm
        return Prediction(output, references, classes, row["length"], rules, first)

    with path.open(encoding="utf-8") as stream:
        return [scored(json.loads(line)) for line in stream if line.strip()]


def measure_run(directory: Path) -> dict[str, Any]:
    """All effects on one run: a folder of <task>.jsonl of all 16 tasks with `length`, and its result.json."""
    found = {name: predictions(spec, directory / f"{name}.jsonl") for name, spec in TASKS.items()}
    known = published(directory)
    rules = {rule: _scores(found, _by_rule(rule)) for rule in ("lceg", "thudm", "none", "lm_eval")}
    official = rules["thudm"]
    return {
        "published_equal": sum(round(official[name], 2) == known.get(name, {}).get("") for name in TASKS),
        "first_line": {
            rule: {"tasks": _rounded(scores), "mean": _two(mean(scores) or 0.0)} for rule, scores in rules.items()
        },
        "outputs_that_begin_with_a_line_break": {
            name: sum(p.output.startswith("\n") for p in rows) for name, rows in found.items()
        },
        "references": _references(found),
        "normalisation": _normalisation(found),
        "code": _code(found),
        "averages": _averages(found, official, directory),
        "repeated": dict(_repeated(found)),
        "split": {
            "8192_words": _split(found, lambda p: p.length_words <= SPLIT_WORDS),
            "under_8000_words": _split(found, lambda p: p.length_words < LCEG_SPLIT_WORDS),
        },
    }


def measure_unit(directory: Path, test_file: Path, tokenizer_dir: Path) -> dict[str, Any]:
    """<=8k by words and by tokens of whole prompts, for the one task whose inputs are at hand."""
    from tokenweight.evaluation.longbench import truncate_middle
    from tokenweight.evaluation.tokens import token_counter

    spec, counter = TASKS[test_file.stem], token_counter(tokenizer_dir)
    with test_file.open(encoding="utf-8") as stream:
        samples = [json.loads(line) for line in stream]
    prompts = [spec.template.format(context=row["context"], input=row["input"]) for row in samples]
    tokens = [truncate_middle(prompt, 10**9, counter)[2] for prompt in prompts]
    words = [row["length"] for row in samples]
    content: dict[str, Any] = {
        "task": spec.name,
        "tokenizer": tokenizer_dir.name,
        "samples": len(samples),
        "short_by_words": sum(n <= SPLIT_WORDS for n in words),
        "short_by_tokens": sum(n <= SPLIT_WORDS for n in tokens),
        "tokens_per_word": _two(sum(tokens) / sum(words)),
        "cut_at_4096_tokens": sum(n > 4096 - spec.new_tokens for n in tokens),
        "scores": {},
    }
    for run in _runs(directory):
        rows = predictions(spec, run / f"{spec.name}.jsonl")
        if [row.references for row in rows] != [row["answers"] for row in samples]:
            raise SystemExit(f"{run}: {spec.name}.jsonl is not in the order of {test_file}")
        content["scores"][run.name] = {
            f"{side}_by_{unit}": _percent([row.score for row, n in zip(rows, lengths, strict=True) if test(n)])
            for unit, lengths in (("words", words), ("tokens", tokens))
            for side, test in (("short", lambda n: n <= SPLIT_WORDS), ("long", lambda n: n > SPLIT_WORDS))
        }
    return content


def measure(directory: Path) -> dict[str, Any]:
    """Effects on each run below `directory`."""
    runs = _runs(directory)
    if not runs:
        raise SystemExit(f"{directory}: holds no run; give the folder of folders with <task>.jsonl and result.json")
    return {run.name: measure_run(run) for run in runs}


def _runs(directory: Path) -> list[Path]:
    return sorted(path.parent for path in directory.glob("*/result.json"))


def _two(value: float) -> float:
    return round(value, 2)


def _percent(scores: list[float]) -> float | None:
    return _two(100 * fmean(scores)) if scores else None


def _by_rule(rule: str) -> Callable[[Prediction], float]:
    return lambda prediction: prediction.rules[rule]


def _scores(found: dict[str, list[Prediction]], value: Callable[[Prediction], float]) -> dict[str, float]:
    return {name: 100 * fmean(map(value, rows)) for name, rows in found.items()}


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    return {name: _two(score) for name, score in scores.items()}


def _references(found: dict[str, list[Prediction]]) -> dict[str, Any]:
    several = {name: rows for name, rows in found.items() if any(len(p.references) > 1 for p in rows)}
    best, first = (_scores(found, value) for value in (lambda p: p.score, lambda p: p.first_reference))
    return {
        "tasks": {
            name: {
                "with_several": sum(len(p.references) > 1 for p in rows),
                "best": _two(best[name]),
                "first": _two(first[name]),
            }
            for name, rows in several.items()
        },
        "mean_best": _two(mean(best) or 0.0),
        "mean_first": _two(mean(first) or 0.0),
    }


def _normalisation(found: dict[str, list[Prediction]]) -> dict[str, Any]:
    def plain(spec: LongBenchTask, prediction: Prediction) -> float:
        text = spec.scored_part(prediction.output, "thudm")
        return max(metrics.word_f1(text.split(), reference.split()) for reference in prediction.references)

    return {
        name: {
            "normalised": _percent([p.score for p in found[name]]),
            "plain_words": _percent([plain(spec, p) for p in found[name]]),
        }
        for name, spec in TASKS.items()
        if spec.metric == "qa_f1"
    }


def _code(found: dict[str, list[Prediction]]) -> dict[str, Any]:
    return {
        name: {
            "predictions": len(found[name]),
            "difflib": _percent([p.score for p in found[name]]),
            "levenshtein": _percent([max(indel_similarity(p.output, r) for r in p.references) for p in found[name]]),
            "blank_lines_skipped": _percent([p.rules["lm_eval"] for p in found[name]]),
            "changed_by_blank_lines": sum(p.rules["lm_eval"] != p.score for p in found[name]),
        }
        for name, spec in TASKS.items()
        if spec.metric == "code_similarity"
    }


def _averages(found: dict[str, list[Prediction]], official: dict[str, float], directory: Path) -> dict[str, Any]:
    listed = json.loads((directory / "result.json").read_text(encoding="utf-8"))
    all_21 = [official[name] for name in TASKS] + [listed[name] for name in CHINESE if name in listed]
    return {
        "tasks_16": _two(mean(official) or 0.0),
        "categories_6": _two(fmean(categories(official).values())),
        "with_chinese_21": _two(fmean(all_21)) if len(all_21) == len(TASKS) + len(CHINESE) else None,
        "samples": _percent([p.score for rows in found.values() for p in rows]),
    }


def _repeated(found: dict[str, list[Prediction]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tasks with more lines than LongBench has samples, and their score without the lines that stand there twice."""
    for name, rows in found.items():
        if len(rows) > OFFICIAL_SAMPLES.get(name, 200):
            once = {(p.output, tuple(p.references), p.length_words): p for p in rows}
            yield (
                name,
                {
                    "lines": len(rows),
                    "distinct": len(once),
                    "score": _percent([p.score for p in rows]),
                    "score_of_distinct": _percent([p.score for p in once.values()]),
                },
            )


def _split(found: dict[str, list[Prediction]], is_short: Callable[[Prediction], bool]) -> dict[str, Any]:
    sides: dict[str, Any] = {}
    for side, wanted in (("short", True), ("long", False)):
        chosen = {name: [p.score for p in rows if is_short(p) is wanted] for name, rows in found.items()}
        means = {name: fmean(scores) for name, scores in chosen.items() if scores}
        sides[side] = {
            "samples": sum(map(len, chosen.values())),
            "tasks": len(means),
            "mean": _percent(list(means.values())),
        }
    return sides
