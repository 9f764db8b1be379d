"""Write the prompts of one LongBench task for one tokenizer and context length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenweight.evaluation.longbench.data import load_samples
from tokenweight.evaluation.longbench.tasks import longbench_task
from tokenweight.evaluation.longbench.truncation import truncate_middle
from tokenweight.evaluation.prompts import write_prompts
from tokenweight.evaluation.tokens import token_counter
from tokenweight.recipes.schema import LongBench


def prepare_longbench(
    task: str, longbench: LongBench, tokenizer_dir: Path, context_tokens: int, out_dir: Path
) -> dict[str, Any]:
    """Write ``prompts.jsonl`` and ``summary.json`` into `out_dir`; return the summary.

    Prompts are cut in the middle to ``context_tokens - max_new_tokens`` with BOS, before any backend sees them.

    Raises:
        UserError: missing or malformed data, or a context too short for the task.
    """
    spec = longbench_task(task)
    counter = token_counter(tokenizer_dir)
    max_new_tokens = min(spec.max_new_tokens, longbench.max_new_tokens or spec.max_new_tokens)
    budget_tokens = context_tokens - max_new_tokens
    rows: list[dict[str, Any]] = []
    for doc_id, sample in enumerate(load_samples(task, longbench)):
        prompt, n_prompt_tokens, untruncated_tokens = truncate_middle(sample.prompt, budget_tokens, counter)
        rows.append(
            {
                "doc_id": doc_id,
                "prompt": prompt,
                "references": sample.answers,
                "max_new_tokens": max_new_tokens,
                "n_prompt_tokens": n_prompt_tokens,
                "untruncated_tokens": untruncated_tokens,
                "truncated": untruncated_tokens > budget_tokens,
                "length_words": sample.length_words,
                "all_classes": sample.all_classes,
                "answer_prefix": "",
            }
        )
    summary = {
        "n": len(rows),
        "fill_ratio_mean": round(sum(row["n_prompt_tokens"] for row in rows) / len(rows) / budget_tokens, 4),
        "share_truncated": sum(row["truncated"] for row in rows) / len(rows),
    }
    write_prompts(rows, summary, out_dir)
    return summary
