"""Prompts that are made beforehand (RULER, LongBench), so that every backend reads the same ones.

A prepare artifact holds one line per prompt in `prompts.jsonl`, and a summary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.errors import StageError
from tokenweight.evaluation.benchmark import AskedBenchmark, Unit, UnitRun
from tokenweight.evaluation.samples import Sample
from tokenweight.files import replace_file
from tokenweight.recipes.schema import Evaluation

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel


class PromptedBenchmark(AskedBenchmark):
    """A benchmark whose prompts `prepare` writes; they are answered greedily and without stop sequences."""

    prompted = True

    def samples(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel) -> dict[Unit, list[Sample]]:
        return {run.unit: unit_samples(run.unit, run.prepared_dirs[0], model) for run in runs}


def prompt_record(
    doc_id: int, prompt: str, references: list[str], max_new_tokens: int, n_prompt_tokens: int, **others: Any
) -> dict[str, Any]:
    """A line of ``prompts.jsonl``; `others` in place of the values of a prompt that was not cut."""
    return {
        "doc_id": doc_id,
        "prompt": prompt,
        "references": references,
        "max_new_tokens": max_new_tokens,
        "n_prompt_tokens": n_prompt_tokens,
        "untruncated_tokens": n_prompt_tokens,
        "truncated": False,
        "length_words": None,
        "all_classes": None,
        "answer_prefix": "",
        **others,
    }


def write_prompts(rows: list[dict[str, Any]], out_dir: Path, **fill_ratios: float) -> dict[str, Any]:
    """Write ``prompts.jsonl`` and ``summary.json``, each complete or not at all; returns the summary."""
    share_truncated = sum(row["truncated"] for row in rows) / len(rows)
    summary = {"n": len(rows), **fill_ratios, "share_truncated": share_truncated}
    out_dir.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    replace_file(out_dir / "prompts.jsonl", lines)
    replace_file(out_dir / "summary.json", json.dumps(summary, indent=2) + "\n")
    return summary


def read_prompts(prepared_dir: Path) -> Iterator[dict[str, Any]]:
    """Records of a prepare artifact's prompts.jsonl. StageError: the file is missing or a line is not JSON."""
    path = prepared_dir / "prompts.jsonl"
    try:
        with path.open(encoding="utf-8") as stream:
            yield from map(json.loads, stream)
    except FileNotFoundError:
        raise StageError(f"{path}: missing; prepare the unit first") from None
    except ValueError as error:
        raise StageError(f"{path}: not JSON Lines ({error}); remove the artifact and run again") from None


def unit_samples(unit: Unit, prepared_dir: Path, model: LoadedModel) -> list[Sample]:
    """Samples of a unit.

    Raises:
        StageError: a prompt does not fit, or has another number of tokens than when it was prepared.
    """
    from lm_eval.api.instance import Instance

    samples = []
    for record in read_prompts(prepared_dir):
        doc_id, text, new_tokens = record["doc_id"], record["prompt"], record["max_new_tokens"]
        prompt = model.checked(text, new_tokens)
        if prompt.n_tokens != record["n_prompt_tokens"]:
            raise StageError(
                f"{unit.id}: sample {doc_id} has {prompt.n_tokens} tokens, prepared with {record['n_prompt_tokens']}: "
                "the checkpoint's tokenizer is not the one it was prepared for"
            )
        prompt = replace(prompt, untruncated_tokens=record["untruncated_tokens"])
        asked = (text, {"max_gen_toks": new_tokens, "until": [], "do_sample": False})
        instance = Instance("generate_until", doc={}, arguments=asked, idx=0, metadata=(unit.id, doc_id, 1))
        own = {name: record[name] for name in ("all_classes", "length_words")}
        samples.append(Sample(doc_id, [instance], prompt, record["references"], new_tokens, **own))
    return samples
