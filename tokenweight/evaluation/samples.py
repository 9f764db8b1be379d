"""Benchmarks that ask a model: a sample on its way from lm-eval requests to a scored row.

Prompts of RULER and LongBench are made beforehand, so that every backend reads the same ones: a prepare artifact holds
one line per prompt in `prompts.jsonl`, and a summary.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.benchmark import Benchmark, Kept, Step, Unit, UnitRun, version
from tokenweight.evaluation.data import json_objects
from tokenweight.evaluation.loaded_model import LoadedModel, Prompt
from tokenweight.evaluation.rows import SUMMARY_NAME, Row, sha256_text
from tokenweight.files import replace_file
from tokenweight.recipes.schema import Evaluation

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

AHEAD_SAMPLES = 1024  # whose prompts are encoded before the model is asked: enough to find many of one length
MIN_SAMPLES = 8  # fewer say nothing about the shape of a distribution
ECHO_HEAD_CHARACTERS = 40
ECHO_TAIL_CHARACTERS = 200
Classes = list[str] | None  # names, of which an answer is one (LongBench's trec)


@dataclass(frozen=True)
class Scored:
    filtered: str  # the part that it compared
    score: float
    tolerant_score: float | None = None


@dataclass(frozen=True)
class Sample:
    """One document of a unit with its requests: one generation, or one log-likelihood per choice."""

    unit: Unit
    doc_id: int
    instances: list[Instance]
    prompt: Prompt
    references: list[str]
    new_tokens: int  # 0: log-likelihoods
    all_classes: Classes = None
    length_words: int | None = None
    task: Any = None  # of lm-eval, where it scores

    @property
    def text(self) -> str:
        """What is asked; of choices, what comes before each."""
        return str(self.instances[0].args[0])

    @property
    def chance(self) -> float:
        """What guessing gives, of several choices one; lm-eval may also ask for each without its question."""
        choices = 0 if self.new_tokens else sum(bool(instance.args[0]) for instance in self.instances)
        return 1 / choices if choices > 1 else 0.0

    def row(self, metric: str, output: str, scored: Scored) -> Row:
        prompt = self.prompt
        return Row(
            doc_id=self.doc_id,
            prompt_sha256=sha256_text(self.text),
            n_prompt_tokens=prompt.n_tokens,
            untruncated_tokens=prompt.untruncated_tokens,
            truncated=prompt.truncated,
            length_words=self.length_words,
            output=output,
            reference=json.dumps(self.references),
            metric=metric,
            bos_tokens=prompt.bos_tokens,
            left_truncated=prompt.left_truncated,
            special_tokens=prompt.special_tokens,
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


class AskedBenchmark(Benchmark):
    """A benchmark whose prompts a model answers greedily, by lm-eval's requests."""

    one_pass = False

    @abstractmethod
    def samples(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel) -> Iterator[Sample]:
        """Samples with the requests that they make of the model, one unit's after the other's. StageError: as of `steps`."""

    def new_tokens(self, task: str, evaluation: Evaluation) -> int:
        """How many tokens a task generates at most; 0: it asks for log-likelihoods."""
        return self.tasks[task].new_tokens

    def generates(self, task: str, evaluation: Evaluation) -> bool:
        return self.new_tokens(task, evaluation) > 0

    @abstractmethod
    def answered(self, sample: Sample, answers: list[Any], evaluation: Evaluation) -> tuple[str, Scored]:
        """The output that is kept of the answers to a sample's requests (a generated text, or of each choice its
        log-likelihood in nats and whether it is greedy), and its score."""

    def signs(self, task: str, rows: Sequence[Row]) -> dict[str, bool]:
        found = super().signs(task, rows) | {"all_empty": all(not row.output.strip() for row in rows)}
        if len(rows) >= MIN_SAMPLES:
            scores, most = [row.score for row in rows], self.tasks[task].greatest_mean
            one_answer = len({row.filtered.strip() for row in rows}) == 1
            found |= {
                "all_zero": max(scores) == 0,
                "all_equal": max(scores) != 0 and min(scores) == max(scores) < 1,
                "one_answer_to_everything": one_answer and len({row.reference for row in rows}) > 1,
                "implausibly_perfect": most is not None and fmean(scores) > most,
            }
        return found

    def protocol(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        found = super().protocol(unit, evaluation)
        found |= {"harness": f"lm-eval {version('lm-eval')}", "chat_template": False}
        if self.hub_data:
            hub = self.hub(evaluation)
            found["hub"] = hub.identity if hub else None
        if new_tokens := self.new_tokens(unit.task, evaluation):
            found["generation"] = {"do_sample": False, "max_new_tokens": new_tokens}
        return found

    def steps(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel, rows: Kept) -> Iterator[Step]:
        made_of = groupby(self.samples(runs, evaluation, model), key=lambda sample: sample.unit)
        unseen, seen, done = set(rows), 0, 0
        while group := _next_units(made_of):
            notes = {unit: {"chance": fmean(sample.chance for sample in own)} for unit, own in group.items()}
            waiting = [one for unit, own in group.items() for one in own if one.doc_id not in rows[unit]]
            unseen, seen = unseen.difference(group), seen + sum(map(len, group.values()))
            total = (
                done + len(waiting) + round(seen / (len(rows) - len(unseen)) * len(unseen))
            )  # as if all had the mean
            yield Step(
                {}, done, total, {unit: notes[unit] for unit, own in group.items() if len(rows[unit]) == len(own)}
            )
            for batch in _batches(waiting, model):
                made = defaultdict[Unit, list[Row]](list)
                for sample, answers in zip(batch, _answers(batch, model), strict=True):
                    metric = self.metric(sample.unit.task, evaluation)
                    made[sample.unit].append(sample.row(metric, *self.answered(sample, answers, evaluation)))
                done += len(batch)
                complete = {unit for unit, new in made.items() if len(rows[unit]) + len(new) == len(group[unit])}
                yield Step(made, done, total, {unit: notes[unit] for unit in complete})
        yield Step({}, done, done, {unit: {"chance": 0.0} for unit in unseen})


def _next_units(made_of: Iterator[tuple[Unit, Iterator[Sample]]]) -> dict[Unit, list[Sample]]:
    """The samples of the next units, AHEAD_SAMPLES at least if there are so many; empty: there is none."""
    found: dict[Unit, list[Sample]] = {}
    while sum(map(len, found.values())) < AHEAD_SAMPLES and (of_unit := next(made_of, None)):
        found[of_unit[0]] = list(of_unit[1])
    return found


def _batches(waiting: list[Sample], model: LoadedModel) -> Iterator[list[Sample]]:
    """Samples with equal generation arguments, longest first, as many as the batch's tokens allow when padded."""

    def order(sample: Sample) -> tuple[Any, ...]:
        arguments = repr(sample.instances[0].args[1:]) if sample.new_tokens else ""
        return (sample.new_tokens, arguments), -sample.prompt.n_tokens, sample.unit.id, sample.doc_id

    for _, alike in groupby(sorted(waiting, key=order), key=lambda sample: order(sample)[0]):
        left = list(alike)
        while left:
            longest = left[0]
            size = model.batch_size(longest.prompt.n_tokens + longest.new_tokens, longest.new_tokens)
            yield left[:size]
            left = left[size:]


def _answers(samples: list[Sample], model: LoadedModel) -> list[list[Any]]:
    """What the model answers to each sample's requests."""
    import torch

    with suppress(torch.OutOfMemoryError):
        answers = iter(model.ask([instance for sample in samples for instance in sample.instances], len(samples)))
        return [list(islice(answers, len(sample.instances))) for sample in samples]
    torch.cuda.empty_cache()  # what filled it is gone
    if len(samples) == 1:
        raise StageError(
            f"a prompt of {samples[0].prompt.n_tokens} tokens does not fit the GPU's memory; use shorter lengths"
        )
    half = len(samples) // 2
    return _answers(samples[:half], model) + _answers(samples[half:], model)


class OutputBenchmark(AskedBenchmark):
    """One whose scores follow from outputs and references, so that stored outputs are scored again without a model."""

    @abstractmethod
    def score(self, task: str, output: str, references: list[str], classes: Classes, evaluation: Evaluation) -> Scored:
        """What the metric makes of an output, fresh or stored: a text, or a JSON list of the choices' log-likelihoods."""

    def answered(self, sample: Sample, answers: list[Any], evaluation: Evaluation) -> tuple[str, Scored]:
        output = answers[0] if sample.new_tokens else json.dumps([float(nats) for nats, _ in answers])
        return output, self.score(sample.unit.task, output, sample.references, sample.all_classes, evaluation)


# --- Prompts that are made beforehand ------------------------------------------------------------


class PromptedBenchmark(OutputBenchmark):
    """A benchmark whose prompts `prepare` writes; they are answered without stop sequences."""

    prompted = True

    def samples(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel) -> Iterator[Sample]:
        from lm_eval.api.instance import Instance

        for unit, line in ((run.unit, line) for run in runs for line in read_prompts(run.prepared_dirs[0])):
            doc_id, text, new_tokens = line["doc_id"], line["prompt"], line["max_new_tokens"]
            prompt = model.checked(text, new_tokens)
            if prompt.n_tokens != line["n_prompt_tokens"]:
                raise StageError(
                    f"{unit.id}: sample {doc_id} has {prompt.n_tokens} tokens, prepared with {line['n_prompt_tokens']}: "
                    "the checkpoint's tokenizer is not the one it was prepared for"
                )
            prompt = replace(prompt, untruncated_tokens=line["untruncated_tokens"])
            asked = (text, {"max_gen_toks": new_tokens, "until": [], "do_sample": False})
            instance = Instance("generate_until", doc={}, arguments=asked, idx=0, metadata=(unit.id, doc_id, 1))
            own = {name: line[name] for name in ("references", "all_classes", "length_words")}
            yield Sample(unit, doc_id, [instance], prompt, new_tokens=new_tokens, **own)


class UsersBenchmark(PromptedBenchmark):
    """One of prompts by length whose data the user gives: nothing is shipped, and the hub is not read."""

    @abstractmethod
    def least_tokens(self, evaluation: Evaluation) -> int:
        """The context that its shortest samples need."""

    def reads_shipped(self, evaluation: Evaluation) -> bool:
        return False

    def users_dir(self, evaluation: Evaluation) -> Path:
        """Setting `data`. UserError: it is not given."""
        if (data := self.settings(evaluation).data) is None:
            raise UserError(f"evaluation.{self.name}.data: give {self.layout} with {self._option}")
        return Path(data)

    @property
    def _option(self) -> str:
        return f"--set evaluation.{self.name}.data=DIR"

    def refusal(self, evaluation: Evaluation, context_tokens: int, longest_tokens: int) -> str | None:
        if context_tokens >= (least := self.least_tokens(evaluation)):
            return None
        way = f"--lengths {least}" if longest_tokens >= least else "a model whose config.json says at least so many"
        data = "" if self.settings(evaluation).data else f", and its data, which are not shipped, with {self._option}"
        return f"reads {context_tokens} tokens, and the shortest samples of {self.name} need {least}; give {way}{data}"


_UNCUT: dict[str, Any] = {  # a line of prompts.jsonl, its keys in order, with the values of a prompt that was not cut
    "doc_id": 0, "prompt": "", "references": [], "max_new_tokens": 0, "n_prompt_tokens": 0, "untruncated_tokens": 0,
    "truncated": False, "length_words": None, "all_classes": None, "answer_prefix": "",
}  # fmt: skip


def write_prompts(made: list[dict[str, Any]], out_dir: Path, **fill_ratios: float) -> dict[str, Any]:
    """Write ``prompts.jsonl`` and ``summary.json``, each complete or not at all; returns the summary.

    `made`: doc_id, prompt, references, max_new_tokens, n_prompt_tokens of each, and what is unlike an uncut one's.
    """
    rows = [_UNCUT | {"untruncated_tokens": row["n_prompt_tokens"]} | row for row in made]
    for row in rows:
        row["truncated"] = row["n_prompt_tokens"] < row["untruncated_tokens"]
    summary = {"n": len(rows), **fill_ratios, "share_truncated": sum(row["truncated"] for row in rows) / len(rows)}
    out_dir.mkdir(parents=True, exist_ok=True)
    replace_file(out_dir / "prompts.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    replace_file(out_dir / SUMMARY_NAME, json.dumps(summary, indent=2) + "\n")
    return summary


def read_prompts(prepared_dir: Path) -> Iterator[dict[str, Any]]:
    """Records of a prepare artifact's prompts.jsonl. UserError: the file is missing or a line is not JSON."""
    return (record for _, record in json_objects(prepared_dir / "prompts.jsonl", *_UNCUT))
