"""Score stored outputs again, without the model: a changed metric costs seconds, not an evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tokenweight.errors import StageError
from tokenweight.evaluation import bbh, mmlu
from tokenweight.evaluation.prompted import read_prompts, scored
from tokenweight.evaluation.rows import Row
from tokenweight.evaluation.units import Unit
from tokenweight.recipes.schema import Evaluation


def rescore_rows(
    rows: Sequence[Row], unit: Unit, evaluation: Evaluation, prepared_dir: Path | None = None
) -> list[Row]:
    """Rows with filtered, metric and scores computed anew from their outputs.

    `prepared_dir` is the unit's prepare artifact (class names of LongBench's trec are only there).

    Raises:
        StageError: perplexity rows (they hold no output), or rows of other samples than prepared_dir's.
    """
    if unit.benchmark == "perplexity":
        raise StageError(f"{unit.id}: perplexity has no outputs to score again")
    classes: dict[int, list[str] | None] = {}
    if prepared_dir is not None:
        classes = {record["doc_id"]: record.get("all_classes") for record in read_prompts(prepared_dir)}
        if unknown := [row.doc_id for row in rows if row.doc_id not in classes]:
            raise StageError(f"{unit.id}: samples {unknown[:3]} are not in {prepared_dir}")
    return [_rescored(row, unit, evaluation, classes.get(row.doc_id)) for row in rows]


def _rescored(row: Row, unit: Unit, evaluation: Evaluation, all_classes: list[str] | None) -> Row:
    references = json.loads(row.reference)
    if unit.benchmark == "mmlu":
        letter = mmlu.chosen(json.loads(row.output))
        return replace(row, filtered=letter, score=float(letter == references[0]))
    if unit.benchmark == "bbh":
        answer = bbh.strict_answer(row.output)
        return replace(
            row,
            filtered=answer,
            score=float(answer == references[0]),
            tolerant_score=bbh.tolerant_score(row.output, references[0]),
        )
    new = scored(unit, row.output, references, all_classes, evaluation)
    return replace(row, filtered=new.filtered, metric=new.metric, score=new.score)
