"""LongBench as a benchmark: units, identity, prompts and scores of its 16 English tasks (Section 4, Evaluation)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenweight.evaluation.benchmark import HubData, Unit, greedy
from tokenweight.evaluation.longbench.data import HUB, load_samples, longbench_files, truncate_middle
from tokenweight.evaluation.longbench.metrics import score_longbench
from tokenweight.evaluation.longbench.tasks import TASKS, longbench_task
from tokenweight.evaluation.prompts import PromptedBenchmark, prompt_record, write_prompts
from tokenweight.evaluation.samples import Scored
from tokenweight.evaluation.tokens import token_counter
from tokenweight.recipes.schema import Evaluation
from tokenweight.recipes.schema import LongBench as Settings


class LongBench(PromptedBenchmark):
    name = "longbench"
    metric_packages = ("rouge",)
    scoring_fields = ("first_line",)
    classes_in_prompts = True  # trec's

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        return [Unit(self.name, task) for task in TASKS]

    def raw_files(self, unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
        files = longbench_files(unit.task, evaluation.longbench)
        return {"longbench.data": files} if files else {}

    def hub(self, evaluation: Evaluation) -> HubData | None:
        return HUB if evaluation.longbench.data == "hub" else None

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """Its own, without the border between short and long: tables draw it, rows have both lengths."""
        report = {name: Settings.model_fields[name].default for name in ("split_tokens", "length_unit")}
        return {"longbench": evaluation.longbench.model_copy(update=report)}

    def metric(self, task: str) -> str:
        return longbench_task(task).metric

    def asked(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        hub = self.hub(evaluation)
        generation = greedy(longbench_task(unit.task).max_new_tokens)
        return {"generation": generation, "hub": hub.identity if hub else None}

    def implausible_mean(self, task: str) -> float:
        return 0.95

    def score(
        self, task: str, output: str, references: list[str], all_classes: list[str] | None, evaluation: Evaluation
    ) -> Scored:
        return Scored(*score_longbench(task, output, references, all_classes, evaluation.longbench.first_line))

    def prepare(
        self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path, context_tokens: int, out_dir: Path
    ) -> dict[str, Any]:
        """Prompts are cut in the middle to ``context_tokens - max_new_tokens`` with BOS, before any backend sees them."""
        settings, task = evaluation.longbench, longbench_task(unit.task)
        counter = token_counter(tokenizer_dir)
        max_new_tokens = min(task.max_new_tokens, settings.max_new_tokens or task.max_new_tokens)
        budget_tokens = context_tokens - max_new_tokens
        rows = []
        for doc_id, sample in enumerate(load_samples(unit.task, settings)):
            prompt, n_prompt_tokens, untruncated_tokens = truncate_middle(sample.prompt, budget_tokens, counter)
            rows.append(
                prompt_record(
                    doc_id,
                    prompt,
                    sample.answers,
                    max_new_tokens,
                    n_prompt_tokens,
                    untruncated_tokens=untruncated_tokens,
                    truncated=untruncated_tokens > budget_tokens,
                    length_words=sample.length_words,
                    all_classes=sample.all_classes,
                )
            )
        fill = sum(row["n_prompt_tokens"] for row in rows) / len(rows) / budget_tokens
        return write_prompts(rows, out_dir, fill_ratio_mean=round(fill, 4))
