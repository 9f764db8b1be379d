"""RULER and LongBench samples: prompts written beforehand, so that every backend reads the same ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.errors import StageError
from tokenweight.evaluation.samples import Sample, Scored
from tokenweight.evaluation.units import Unit
from tokenweight.recipes.schema import Evaluation

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel, Prompt


def read_prompts(prepared_dir: Path) -> Iterator[dict[str, Any]]:
    """Records of a prepare artifact's prompts.jsonl.

    Raises:
        StageError: the file is missing or a line is not JSON.
    """
    path = prepared_dir / "prompts.jsonl"
    try:
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                yield json.loads(line)
    except FileNotFoundError:
        raise StageError(f"{path}: missing; prepare the unit first") from None
    except ValueError as error:
        raise StageError(f"{path}: not JSON Lines ({error}); remove the artifact and run again") from None


def unit_samples(unit: Unit, prepared_dir: Path, evaluation: Evaluation, harness: LoadedModel) -> list[Sample]:
    """Samples of a RULER or LongBench unit, greedy and without stop sequences.

    Raises:
        StageError: a prompt does not fit, or has another number of tokens than when it was prepared.
    """
    from lm_eval.api.instance import Instance

    samples = []
    for record in read_prompts(prepared_dir):
        prompt = harness.checked(record["prompt"], record["max_new_tokens"])
        if prompt.n_tokens != record["n_prompt_tokens"]:
            raise StageError(
                f"{unit.id}: sample {record['doc_id']} has {prompt.n_tokens} tokens, prepared with "
                f"{record['n_prompt_tokens']}: the checkpoint's tokenizer is not the one it was prepared for"
            )
        arguments = {"max_gen_toks": record["max_new_tokens"], "until": [], "do_sample": False}
        instance = Instance(
            request_type="generate_until",
            doc={},
            arguments=(record["prompt"], arguments),
            idx=0,
            metadata=(unit.id, record["doc_id"], 1),
        )
        samples.append(_sample(unit, record, instance, prompt, evaluation))
    return samples


def _sample(unit: Unit, record: dict[str, Any], instance: Any, prompt: Prompt, evaluation: Evaluation) -> Sample:
    references, all_classes = record["references"], record.get("all_classes")
    return Sample(
        doc_id=record["doc_id"],
        instances=[instance],
        n_prompt_tokens=prompt.n_tokens,
        untruncated_tokens=record["untruncated_tokens"],
        truncated=record["truncated"],
        length_words=record["length_words"],
        max_new_tokens=record["max_new_tokens"],
        score=lambda answers: scored(unit, answers[0], references, all_classes, evaluation),
        bos_tokens=prompt.bos_tokens,
    )


def scored(
    unit: Unit, output: str, references: list[str], all_classes: list[str] | None, evaluation: Evaluation
) -> Scored:
    """Score of a stored or fresh output by the benchmark's metric; needs no model."""
    if unit.benchmark == "ruler":
        from tokenweight.evaluation.ruler.score import score_ruler

        filtered, score = score_ruler(unit.task, output, references)
    else:
        from tokenweight.evaluation.longbench.score import score_longbench

        filtered, score = score_longbench(unit.task, output, references, all_classes, evaluation.longbench.first_line)
    return Scored(output, filtered, json.dumps(references), metric_name(unit), score)


def metric_name(unit: Unit) -> str:
    """Name of the metric of a RULER or LongBench task."""
    if unit.benchmark == "ruler":
        from tokenweight.evaluation.ruler.tasks import ruler_task

        return ruler_task(unit.task).metric
    from tokenweight.evaluation.longbench.tasks import longbench_task

    return longbench_task(unit.task).metric
