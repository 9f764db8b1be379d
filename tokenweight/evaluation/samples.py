"""A sample on its way through the model: lm-eval requests before, a scored row after.

Prompts of RULER and LongBench are made beforehand, so that every backend reads the same ones: a prepare artifact holds
one line per prompt in `prompts.jsonl`, and a summary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.errors import StageError
from tokenweight.evaluation.benchmark import AskedBenchmark, Unit, UnitRun
from tokenweight.evaluation.rows import Row, sha256_text
from tokenweight.files import replace_file
from tokenweight.recipes.schema import Evaluation

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

    from tokenweight.evaluation.loaded_model import LoadedModel

ECHO_HEAD_CHARACTERS = 40
ECHO_TAIL_CHARACTERS = 200


@dataclass(frozen=True)
class Prompt:
    """A prompt as it will be read: text without BOS, its tokens with BOS, and what was cut to make it fit."""

    text: str
    n_tokens: int
    untruncated_tokens: int
    bos_tokens: int | None  # at its start; None where the tokenizer has no BOS
    left_truncated: bool = False  # the text itself was cut, not only examples left out

    @property
    def truncated(self) -> bool:
        return self.n_tokens < self.untruncated_tokens


@dataclass(frozen=True)
class Scored:
    """What a metric makes of an output."""

    filtered: str  # the part that it compared
    score: float
    tolerant_score: float | None = None


@dataclass(frozen=True)
class Sample:
    """One document of a unit with its requests: one generation, or one log-likelihood per choice."""

    doc_id: int
    instances: list[Instance]
    prompt: Prompt
    references: list[str]
    new_tokens: int  # 0: log-likelihoods
    all_classes: list[str] | None = None  # LongBench's trec
    length_words: int | None = None

    @property
    def text(self) -> str:
        """What is asked; of choices, what comes before each."""
        return str(self.instances[0].args[0])

    @property
    def prompt_sha256(self) -> str:
        return sha256_text(self.text)

    def row(self, output: str, metric: str, scored: Scored) -> Row:
        """The row of this sample, given the model's output and its score."""
        prompt = self.prompt
        return Row(
            doc_id=self.doc_id,
            prompt_sha256=self.prompt_sha256,
            n_prompt_tokens=prompt.n_tokens,
            untruncated_tokens=prompt.untruncated_tokens,
            truncated=prompt.truncated,
            length_words=self.length_words,
            output=output,
            reference=json.dumps(self.references),
            metric=metric,
            bos_tokens=prompt.bos_tokens,
            left_truncated=prompt.left_truncated,
            echoed=self.new_tokens > 0 and echoes(output, self.text),
            **vars(scored),
        )


def echoes(output: str, prompt: str) -> bool:
    """Whether an output repeats its prompt, white space aside.

    It does if it begins as the prompt begins, if it begins with a piece of the prompt's end that is at least its last
    200 characters, or if the whole prompt is anywhere in it. Prompts under 40 characters are not judged.
    """
    asked, answered = " ".join(prompt.split()), " ".join(output.split())
    if len(asked) < ECHO_HEAD_CHARACTERS:
        return False
    if answered.startswith(asked[:ECHO_HEAD_CHARACTERS]) or asked in answered:
        return True
    tail = asked[-ECHO_TAIL_CHARACTERS:]
    place = answered.find(tail)
    return place >= 0 and asked.endswith(answered[: place + len(tail)])


# --- Prompts that are made beforehand ------------------------------------------------------------


class PromptedBenchmark(AskedBenchmark):
    """A benchmark whose prompts `prepare` writes; they are answered greedily and without stop sequences."""

    prompted = True

    def samples(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel) -> dict[Unit, list[Sample]]:
        return {run.unit: unit_samples(run.unit, run.prepared_dirs[0], model) for run in runs}


_UNCUT: dict[str, Any] = {  # a line of prompts.jsonl, its keys in order, with the values of a prompt that was not cut
    "doc_id": 0, "prompt": "", "references": [], "max_new_tokens": 0, "n_prompt_tokens": 0, "untruncated_tokens": 0,
    "truncated": False, "length_words": None, "all_classes": None, "answer_prefix": "",
}  # fmt: skip


def write_prompts(made: list[dict[str, Any]], out_dir: Path, **fill_ratios: float) -> dict[str, Any]:
    """Write ``prompts.jsonl`` and ``summary.json``, each complete or not at all; returns the summary.

    `made`: doc_id, prompt, references, max_new_tokens, n_prompt_tokens of each, and what is unlike an uncut one's.
    """
    rows = [_UNCUT | {"untruncated_tokens": row["n_prompt_tokens"]} | row for row in made]
    summary = {"n": len(rows), **fill_ratios, "share_truncated": sum(row["truncated"] for row in rows) / len(rows)}
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
