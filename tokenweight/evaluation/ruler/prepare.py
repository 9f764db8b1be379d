"""Write the prompts of one RULER unit: (task, length) for one tokenizer."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from tokenweight.evaluation.prompts import write_prompts
from tokenweight.evaluation.ruler.generator import generate_samples
from tokenweight.evaluation.ruler.sources import Sources
from tokenweight.evaluation.ruler.tasks import ruler_task
from tokenweight.recipes.schema import Ruler


def prepare_ruler(
    unit_task: str, length_tokens: int, ruler: Ruler, tokenizer_dir: Path, out_dir: Path
) -> dict[str, Any]:
    """Write ``prompts.jsonl`` and ``summary.json`` into `out_dir`; return the summary.

    Raises:
        UserError: a source that cannot be read, or a length that cannot hold the task.
    """
    task = ruler_task(unit_task)
    samples = generate_samples(
        unit_task, length_tokens, ruler.samples, ruler.seed, tokenizer_dir, Sources.of(ruler), ruler.profile
    )
    rows: list[dict[str, Any]] = []
    for sample in samples:
        n_prompt_tokens = sample.length_tokens - task.tokens_to_generate
        rows.append(
            {
                "doc_id": sample.index,
                "prompt": sample.prompt,
                "references": sample.outputs,
                "max_new_tokens": task.tokens_to_generate,
                "n_prompt_tokens": n_prompt_tokens,
                "untruncated_tokens": n_prompt_tokens,
                "truncated": False,
                "length_words": None,
                "all_classes": None,
                "answer_prefix": sample.answer_prefix,
            }
        )
    fill = [sample.length_tokens / length_tokens for sample in samples]
    summary = {
        "n": len(rows),
        "fill_ratio_mean": round(fmean(fill), 4),
        "fill_ratio_min": round(min(fill), 4),
        "share_truncated": 0.0,
    }
    write_prompts(rows, summary, out_dir)
    return summary
