"""LongBench as a benchmark: units, samples, prompts cut in the middle, scores of its 16 English tasks (Section 4).

Samples are local JSONL, the hub's parquet mirror, or shipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import HubData, Unit
from tokenweight.evaluation.data import json_lines, readable_hub
from tokenweight.evaluation.longbench.metrics import TASKS, LongBenchTask, score_longbench, unscorable
from tokenweight.evaluation.samples import Classes, PromptedBenchmark, Scored, write_prompts
from tokenweight.evaluation.tokens import TokenCounter, token_counter
from tokenweight.recipes.schema import Evaluation
from tokenweight.recipes.schema import LongBench as Settings


class LongBench(PromptedBenchmark):
    name = "longbench"
    tasks = TASKS
    files = ("{task}.jsonl",)
    layout = "the directory of the official JSONL"
    # The parquet mirror; the original needs a script, which datasets >= 4 refuses.
    hub_data: ClassVar = HubData(
        "Xnhyacinth/LongBench", "2e9ade51ebf45d98942056c0716234f9d5d257d5", "narrativeqa", "--longbench"
    )
    metric_packages = ("rouge",)
    scoring_fields = ("first_line",)
    cut_to_context = True
    classes_in_prompts = True  # trec's

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """Its own, without the border between short and long: tables draw it, rows have both lengths."""
        report = {name: Settings.model_fields[name].default for name in ("split_tokens", "length_unit")}
        return {"longbench": evaluation.longbench.model_copy(update=report)}

    def score(self, task: str, output: str, references: list[str], classes: Classes, evaluation: Evaluation) -> Scored:
        return Scored(*score_longbench(task, output, references, classes, evaluation.longbench.first_line))

    def prepare(
        self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path, context_tokens: int, out_dir: Path
    ) -> dict[str, Any]:
        """Prompts are cut in the middle to ``context_tokens - max_new_tokens`` with BOS, before any backend sees them."""
        settings, task = evaluation.longbench, TASKS[unit.task]
        counter = token_counter(tokenizer_dir)
        max_new_tokens = min(task.new_tokens, settings.max_new_tokens or task.new_tokens)
        budget_tokens = context_tokens - max_new_tokens
        made: list[dict[str, Any]] = []
        for doc_id, (whole, row) in enumerate(self.load_samples(unit.task, settings)):
            prompt, n_prompt_tokens, untruncated_tokens = truncate_middle(whole, budget_tokens, counter)
            made.append(
                {
                    "doc_id": doc_id,
                    "prompt": prompt,
                    "references": list(row["answers"]),
                    "max_new_tokens": max_new_tokens,
                    "n_prompt_tokens": n_prompt_tokens,
                    "untruncated_tokens": untruncated_tokens,
                    "truncated": untruncated_tokens > budget_tokens,
                    "length_words": row.get("length"),
                    "all_classes": row.get("all_classes"),
                }
            )
        fill = sum(row["n_prompt_tokens"] for row in made) / len(made) / budget_tokens
        return write_prompts(made, out_dir, fill_ratio_mean=round(fill, 4))

    def load_samples(self, task: str, longbench: Settings) -> list[tuple[str, dict[str, Any]]]:
        """Prompt, before any cut, and row of a task's samples in the data's order, at most `longbench.samples`.

        UserError: missing file, or a line that lacks a field (names both).
        """
        spec, hub, found = TASKS[task], self.hub_data, list[tuple[str, dict[str, Any]]]()
        for path in self.local_files(task, longbench.data):
            for number, row in json_lines(path, "input", "context", "answers", "length"):
                if wrong := unscorable(task, row):
                    raise UserError(f"{path} line {number}: {wrong}; give the official JSONL")
                found.append((spec.template.format(context=row["context"], input=row["input"]), row))
        if longbench.data == "hub":
            from datasets import load_dataset

            with readable_hub(self.name, hub.repo_id):
                mirror = load_dataset(hub.repo_id, task, split="test", revision=hub.revision)
            found = [(hub_prompt(spec, row), row) for row in mirror]
        if not found:
            raise UserError(f"evaluation.longbench.data: no sample of {task}; give the official test file")
        return found[: longbench.samples]


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


def truncate_middle(prompt: str, budget_tokens: int, counter: TokenCounter) -> tuple[str, int, int]:
    """The prompt (without BOS), its middle removed if it exceeds the budget with BOS (LongBench's and LCEG's way).

    Returns it, its tokens, and its tokens before the cut, both with BOS where the tokenizer adds one. UserError: the
    budget leaves no room for a prompt.
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
