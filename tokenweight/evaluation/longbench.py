"""LongBench (Bai et al., 2023), its 16 English tasks (longbench.yaml): prompts cut in the middle, and metrics in 0..1."""

import json
import re
import string
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, ClassVar, Literal

from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import HubData, Prepared, Unit
from tokenweight.evaluation.data import Task, is_text, json_objects, readable_hub, table
from tokenweight.evaluation.samples import Classes, PromptedBenchmark, Scored
from tokenweight.evaluation.tokens import TokenCounter, token_counter
from tokenweight.recipes.schema import Evaluation
from tokenweight.recipes.schema import LongBench as Settings

FirstLine = Literal["lceg", "thudm"]
_TABLE = table("longbench")


@dataclass(frozen=True, kw_only=True)
class LongBenchTask(Task):
    name: str
    category: str
    template: str
    greatest_mean: float | None = 0.95

    def scored_part(self, output: str, rule: FirstLine) -> str:
        """The prediction, or its first line (leading line breaks left out) where the rule has it so of these tasks: for base
        models the largest single effect on the score."""
        return output.lstrip("\n").split("\n")[0] if self.category in _TABLE["first_line"][rule] else output


TASKS = {
    name: LongBenchTask(name=name, **values | {"template": _TABLE["templates"][values["template"]]})
    for name, values in _TABLE["tasks"].items()
}


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
    classes_in_prompts = True  # trec's

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """Its own, without the border between short and long: tables draw it, rows have both lengths."""
        report = {name: Settings.model_fields[name].default for name in ("split_tokens", "length_unit")}
        return {"longbench": evaluation.longbench.model_copy(update=report)}

    def check_data(self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path | None = None) -> None:
        self.load_samples(unit.task, evaluation.longbench)

    def score(self, task: str, output: str, references: list[str], classes: Classes, evaluation: Evaluation) -> Scored:
        return Scored(*score_longbench(task, output, references, classes, evaluation.longbench.first_line))

    def prepare(self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path, context_tokens: int) -> Prepared:
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
                    "length_words": row.get("length"),
                    "all_classes": row.get("all_classes"),
                }
            )
        fill = sum(row["n_prompt_tokens"] for row in made) / len(made) / budget_tokens
        return made, {"fill_ratio_mean": round(fill, 4)}

    def load_samples(self, task: str, longbench: Settings) -> list[tuple[str, dict[str, Any]]]:
        """Prompt, before any cut, and row of a task's first samples. UserError: no file, or a line that lacks a field."""
        spec, hub, found, seen = TASKS[task], self.hub_data, list[tuple[str, dict[str, Any]]](), set[str]()
        for path in self.local_files(task, longbench.data):
            for number, row in json_objects(path, "input", "context", "answers", "length"):
                id = json.dumps(row.get("_id", number))
                if wrong := _wrong(task, row) or (f"_id {id} is given twice" if id in seen else None):
                    raise UserError(f"{path}, line {number}: {wrong}; give the official JSONL")
                seen.add(id)
                found.append((spec.template.format(context=row["context"], input=row["input"]), row))
        if longbench.data == "hub":
            from datasets import load_dataset

            with readable_hub(self.name, hub.repo_id):
                mirror = load_dataset(hub.repo_id, task, split="test", revision=hub.revision)
            found = [(hub_prompt(spec, row), row) for row in mirror]
        if not found:
            raise UserError(f"evaluation.longbench.data: no sample of {task}; give the official test file")
        return found[: longbench.samples]


def _wrong(task: str, row: dict[str, Any]) -> str | None:
    if not (is_text(row["context"]) and is_text(row["input"]) and type(row["length"]) is int):
        return "context, input or length is null or of another type"
    if row["length"] < 1:
        return f"length is {row['length']}, no number of words"
    if (own := row.get("dataset", task)) != task:
        return f"is a sample of {own!r}"
    return unscorable(task, row)


def hub_prompt(spec: LongBenchTask, row: dict[str, Any]) -> str:
    """The official prompt of a row of the mirror, which was made for a library that caches contexts: its `context` and
    `question` already hold the official template's text, and the prompt is context + question + answer_prefix."""
    context, question = str(row["context"]), str(row["question"])
    if context.startswith(spec.template.partition("{context}")[0]):
        prefix = str(row["answer_prefix"])
        # Few-shot inputs end with the prefix already; the mirror cut it off where no space followed it.
        return context + question + ("" if question.rstrip().endswith(prefix.strip()) else prefix)
    return spec.template.format(context=context, input=question)


def truncate_middle(prompt: str, budget_tokens: int, counter: TokenCounter) -> tuple[str, int, int]:
    """The prompt (without BOS), its middle removed if it exceeds the budget with BOS (LongBench's and LCEG's way); its
    tokens, and its tokens before the cut, both with BOS. UserError: the budget leaves no room for a prompt."""
    ids = counter.encode(prompt)
    untruncated = len(ids) + counter.special_tokens
    half = budget_tokens // 2
    if half <= counter.special_tokens:
        raise UserError(
            f"context_tokens: leaves {budget_tokens} tokens for a prompt; use a model with a longer context"
        )
    kept, n_tokens = prompt, untruncated
    # Tokens of the joined text can outnumber the kept ones by a few at the seam: cut those off as well.
    while n_tokens > budget_tokens:
        kept = counter.decode(ids[: half - counter.special_tokens]) + counter.decode(ids[-half:])
        n_tokens = len(counter.encode(kept)) + counter.special_tokens
        half -= 1
    return kept, n_tokens, untruncated


# --- Metrics ---

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_PARAGRAPH = re.compile(r"Paragraph (\d+)")


def qa_f1(prediction: str, reference: str) -> float:
    """F1 of the words of both: lower case, without punctuation and articles (SQuAD's normalisation)."""
    return word_f1(normalised(prediction), normalised(reference))


def normalised(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def word_f1(predicted: list[str], expected: list[str]) -> float:
    """F1 of two lists of words, each counted as often as it is there."""
    common = sum((Counter(predicted) & Counter(expected)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)


def rouge_l(prediction: str, reference: str) -> float:
    """F of ROUGE-L by `rouge` 1.0.1; 0 where that package refuses (an empty text, or nothing but full stops)."""
    from rouge import Rouge

    try:
        scores = Rouge(metrics=["rouge-l"]).get_scores([prediction], [reference], avg=True)
    except (ValueError, RecursionError):
        return 0.0
    return float(scores["rouge-l"]["f"])


def classification(prediction: str, reference: str, all_classes: list[str]) -> float:
    """1 / number of class names in the prediction, if the right one is among them; parts of its name don't count."""
    found = [name for name in all_classes if name in prediction]
    for name in found:  # the official loop changes the list that it walks, and so skips the class after each removal
        if name in reference and name != reference:
            found.remove(name)
    return 1.0 / len(found) if reference in found else 0.0


def retrieval(prediction: str, reference: str) -> float:
    """Share of the prediction's numbers that are the paragraph's number."""
    return count(prediction, _PARAGRAPH.findall(reference)[0])


def count(prediction: str, reference: str) -> float:
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(str(reference)) / len(numbers) if numbers else 0.0


def code_line(prediction: str) -> str:
    """The first line that is no comment or markup, leading line breaks left out; empty if there is none."""
    lines = prediction.lstrip("\n").split("\n")
    return next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")


def code_similarity(prediction: str, reference: str) -> float:
    """Edit similarity of the first line that is no comment or markup, in whole percent: fuzzywuzzy 0.18's on difflib. That
    package silently takes python-Levenshtein's, which differs, where it is installed: so it is not called here."""
    line = code_line(prediction)
    if line == reference:
        return 1.0
    if not line or not reference:
        return 0.0
    return round(100 * SequenceMatcher(None, line, reference).ratio()) / 100


METRICS: dict[str, Callable[..., float]] = {
    metric.__name__: metric for metric in (qa_f1, rouge_l, classification, retrieval, count, code_similarity)
}


def score_longbench(
    task: str, output: str, references: list[str], all_classes: Classes, first_line: FirstLine
) -> tuple[str, float]:
    """Filtered prediction and its score in 0..1, the maximum over `references`; of trec by the names of `all_classes`.

    `first_line`: which tasks keep only the first line (`lceg` as the paper, `thudm` as LongBench's own code).
    """
    filtered = TASKS[task].scored_part(output, first_line)
    return filtered, best_score(TASKS[task], filtered, references, all_classes)


def best_score(spec: LongBenchTask, filtered: str, references: list[str], all_classes: Classes) -> float:
    """The task's metric in 0..1, the maximum over `references`, of a prediction that is used as it is."""
    more = [all_classes or []] if spec.metric == "classification" else []
    return max((METRICS[spec.metric](filtered, reference, *more) for reference in references), default=0.0)


def unscorable(task: str, row: dict[str, Any]) -> str | None:
    """What of a sample's `answers` and `all_classes` the task's metric could not read."""
    answers, classes, metric = row["answers"], row.get("all_classes"), TASKS[task].metric
    if not isinstance(answers, list) or not answers or not all(map(is_text, answers)):
        return "answers is not a list of texts"
    are_names = isinstance(classes, list) and classes and all(isinstance(one, str) for one in classes)
    if metric == "classification" and not are_names:
        return "all_classes is not a list of class names"
    if metric == "retrieval" and not all(_PARAGRAPH.search(answer) for answer in answers):
        return "an answer does not read 'Paragraph N'"
    return None
