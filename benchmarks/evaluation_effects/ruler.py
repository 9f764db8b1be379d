"""What each rule of RULER's protocol changes in generated samples; no model is needed."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.ruler.benchmark import string_match_all, string_match_part
from tokenweight.evaluation.ruler.generator import generate
from tokenweight.evaluation.ruler.tasks import TASKS, RulerTask, Sources, questions, source_path
from tokenweight.evaluation.tokens import TokenCounter, token_counter

SEED = 42
CWE_LENGTHS = (2048, 8192, 32_768)
SKIP_LENGTHS = (1024, 1536, 2048, 4096)
OVERFLOW_LENGTH = 8192


def _path(sources: Sources, task: RulerTask) -> Path:
    assert task.source is not None
    return source_path(task.source, sources)


def measure(tokenizer_dir: Path, sources: Sources, samples: int) -> dict[str, Any]:
    """All effects, for one tokenizer and one set of source files."""
    counter = token_counter(tokenizer_dir)
    return {
        "tokenizer": tokenizer_dir.name,
        "samples": samples,
        "cwe_demonstration": {str(n): _demonstration(n, samples, tokenizer_dir, counter) for n in CWE_LENGTHS},
        "answer_prefix_tokens": _prefixes(samples, tokenizer_dir, sources, counter),
        "overflow_of_official_2024": _overflows(samples, tokenizer_dir, sources, counter),
        "qa_references": _references(sources),
        "qa_samples": dict(_skipped(tokenizer_dir, sources)),
    }


def _demonstration(length: int, samples: int, tokenizer_dir: Path, counter: TokenCounter) -> dict[str, Any]:
    """Tokens of cwe's demonstration: what a zero-shot prompt lacks after it was sized with it."""
    head = TASKS["cwe"].template.partition("{context}")[0]
    prompts = [s["input"] + s["answer_prefix"] for s in generate("cwe", length, samples, SEED, tokenizer_dir)]
    tokens = [counter.count_whole(prompt[: prompt.rindex(head)]) for prompt in prompts]
    return {"tokens_mean": round(fmean(tokens)), "share_of_length": round(fmean(tokens) / length, 3)}


def _prefixes(samples: int, tokenizer_dir: Path, sources: Sources, counter: TokenCounter) -> dict[str, Any]:
    """Tokens of the answer prefix in the tasks where lm-eval leaves it out of the length."""
    found = {}
    for name, spec in TASKS.items():
        if spec.family in ("niah", "qa"):
            drawn = generate(name, 4096, _at_most(name, samples, sources), SEED, tokenizer_dir, sources)
            tokens = [counter.count_whole(sample["answer_prefix"]) for sample in drawn]
            found[name] = {"mean": round(fmean(tokens), 1), "most": max(tokens)}
    return found


def _overflows(samples: int, tokenizer_dir: Path, sources: Sources, counter: TokenCounter) -> dict[str, Any]:
    """Samples of the 2024 program's sizing that exceed the length once BOS, prefix and generation are counted."""
    found = {}
    for name, spec in TASKS.items():
        count = _at_most(name, samples, sources)
        drawn = generate(name, OVERFLOW_LENGTH, count, SEED, tokenizer_dir, sources, "official-2024")
        fixed = counter.special_tokens + spec.new_tokens
        over = [
            counter.count_whole(sample["input"] + sample["answer_prefix"]) + fixed - OVERFLOW_LENGTH for sample in drawn
        ]
        found[name] = {"samples": count, "too_long": sum(n > 0 for n in over), "most_tokens_over": max(0, *over)}
    return found


def _references(sources: Sources) -> dict[str, Any]:
    """Scores of a model that answers with the first reference, word by word."""
    found: dict[str, Any] = {}
    for name in ("qa_1", "qa_2"):
        asked = questions(TASKS[name].source, _path(sources, TASKS[name]))[0]
        first = [(question.answers[0], question.answers) for question in asked]
        found[name] = {
            "questions": len(asked),
            "references_mean": round(fmean(len(references) for _, references in first), 2),
            "string_match_part": round(100 * fmean(string_match_part(*one) for one in first), 2),
            "string_match_all": round(100 * fmean(string_match_all(*one) for one in first), 2),
        }
    return found


def _skipped(tokenizer_dir: Path, sources: Sources) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of all questions, how many samples lm-eval's generator makes, and whether ours makes all."""
    from lm_eval.tasks.ruler import qa_utils
    from transformers import PreTrainedTokenizerBase

    tokenizer: PreTrainedTokenizerBase = token_counter(tokenizer_dir).tokenizer
    for name, read in (("qa_1", qa_utils.read_squad), ("qa_2", qa_utils.read_hotpotqa)):
        path = _path(sources, TASKS[name])
        qa_utils.download_json = lambda url, path=path: json.loads(path.read_text(encoding="utf-8"))
        asked, documents = read.__wrapped__()
        for length in SKIP_LENGTHS:
            random.seed(SEED)
            with contextlib.redirect_stderr(io.StringIO()):
                try:
                    made = len(qa_utils.generate_samples(tokenizer, documents, asked, length, num_samples=len(asked)))
                except ValueError:  # it made none
                    made = 0
            try:
                here = len(generate(name, length, len(asked), SEED, tokenizer_dir, sources))
            except UserError:
                here = 0
            yield f"{name}_{length}", {"questions": len(asked), "lm_eval": made, "here": here}


def _at_most(name: str, samples: int, sources: Sources) -> int:
    spec = TASKS[name]
    if spec.family != "qa":
        return samples
    return min(samples, len(questions(spec.source, _path(sources, spec))[0]))
