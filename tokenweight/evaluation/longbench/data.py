"""Samples of a LongBench task (local JSONL, the hub's parquet mirror, or shipped), and prompts cut in the middle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import HubData
from tokenweight.evaluation.jsonl import rows
from tokenweight.evaluation.longbench.metrics import PARAGRAPH
from tokenweight.evaluation.longbench.tasks import LongBenchTask, longbench_task
from tokenweight.evaluation.shipped import smoke_eval_dir
from tokenweight.evaluation.tokens import TokenCounter
from tokenweight.recipes.schema import LongBench

HUB = HubData(  # the parquet mirror; the original needs a script, which datasets >= 4 refuses
    "Xnhyacinth/LongBench", "2e9ade51ebf45d98942056c0716234f9d5d257d5", "narrativeqa", "--longbench"
)
_FIELDS = ("input", "context", "answers", "length")


@dataclass(frozen=True)
class Example:
    """One sample with its prompt before truncation. `length_words` is the data's own count."""

    prompt: str
    answers: list[str]
    length_words: int | None
    all_classes: list[str] | None


def longbench_files(task: str, longbench: LongBench) -> list[Path]:
    """Raw local files of a task (their content is identity); none for the hub, whose revision is."""
    return [] if longbench.data == "hub" else [_local_file(longbench_task(task), longbench)]


def load_samples(task: str, longbench: LongBench) -> list[Example]:
    """The samples of a task in the data's order, at most `longbench.samples`.

    Raises:
        UserError: missing file, or a line that lacks a field (names both).
    """
    spec = longbench_task(task)
    samples = _from_hub(spec) if longbench.data == "hub" else _from_file(spec, _local_file(spec, longbench))
    if not samples:
        raise UserError(f"longbench.data: no sample of {task}; give the official test file")
    return samples[: longbench.samples]


def _local_file(spec: LongBenchTask, longbench: LongBench) -> Path:
    if longbench.data is None:
        return smoke_eval_dir() / "longbench" / f"{spec.name}.jsonl"
    path = Path(longbench.data) / f"{spec.name}.jsonl"
    if not path.exists():
        raise UserError(f"longbench.data: {path} does not exist; give the directory of the official JSONL, or 'hub'")
    return path


def _from_file(spec: LongBenchTask, path: Path) -> list[Example]:
    samples = []
    for number, row in rows(path, *_FIELDS):
        if wrong := _unscorable(spec, row):
            raise UserError(f"{path} line {number}: {wrong}; give the official JSONL")
        prompt = spec.template.format(context=row["context"], input=row["input"])
        samples.append(_sample(prompt, row))
    return samples


def _unscorable(spec: LongBenchTask, row: dict[str, Any]) -> str | None:
    """What the task's metric could not read, told before a model answers."""
    answers = row["answers"]
    if not isinstance(answers, list) or not answers:
        return "answers is no list of references"
    if spec.name == "passage_retrieval_en" and not all(PARAGRAPH.search(str(answer)) for answer in answers):
        return f"answers must read 'Paragraph N', not {answers[0]!r}"
    if spec.name == "trec" and not row.get("all_classes"):
        return "has no field 'all_classes'"
    return None


def _from_hub(spec: LongBenchTask) -> list[Example]:
    from datasets import load_dataset

    try:
        mirror = load_dataset(HUB.repo_id, spec.name, split="test", revision=HUB.revision)
    except (OSError, ValueError) as error:
        raise UserError(
            f"longbench.data: {HUB.repo_id} ({spec.name}) cannot be loaded ({type(error).__name__}); "
            "go online once, or give a directory of the official JSONL"
        ) from error
    return [_sample(hub_prompt(spec, row), row) for row in mirror]


def hub_prompt(spec: LongBenchTask, row: dict[str, Any]) -> str:
    """The official prompt of a row of the mirror.

    The mirror was made for a library that caches contexts: its `context` and `question` already hold the
    official template's text, and the prompt is context + question + answer_prefix.
    """
    context, question = str(row["context"]), str(row["question"])
    if context.startswith(spec.template.partition("{context}")[0]):
        prefix = str(row["answer_prefix"])
        # Few-shot inputs end with the prefix already; the mirror cut it off where no space followed it.
        return context + question + ("" if question.rstrip().endswith(prefix.strip()) else prefix)
    return spec.template.format(context=context, input=question)


def _sample(prompt: str, row: dict[str, Any]) -> Example:
    words = row.get("length")
    classes = row.get("all_classes")
    return Example(
        prompt,
        [str(answer) for answer in row["answers"]],
        None if words is None else int(words),
        None if classes is None else [str(name) for name in classes],
    )


def truncate_middle(prompt: str, budget_tokens: int, counter: TokenCounter) -> tuple[str, int, int]:
    """The prompt with its middle tokens removed if it exceeds the budget (LongBench's and LCEG's way).

    Args:
        prompt: text without BOS.
        budget_tokens: context minus tokens to generate; BOS counts.

    Returns:
        The prompt, its tokens, and its tokens before the cut, both with BOS where the tokenizer adds one.

    Raises:
        UserError: the budget leaves no room for a prompt.
    """
    ids = counter.encode(prompt)
    untruncated = len(ids) + counter.special_tokens
    half = budget_tokens // 2
    if half <= counter.special_tokens:
        raise UserError(f"context_tokens: {budget_tokens} tokens are left for a prompt; use a model with more context")
    kept, n_tokens = prompt, untruncated
    # Tokens of the joined text can outnumber the kept ones by a few at the seam: cut those off as well.
    while n_tokens > budget_tokens:
        kept = counter.decode(ids[: half - counter.special_tokens]) + counter.decode(ids[-half:])
        n_tokens = len(counter.encode(kept)) + counter.special_tokens
        half -= 1
    return kept, n_tokens, untruncated
