"""BIG-Bench-Hard by lm-eval's own bbh_cot_fewshot tasks (3 exemplars exist; the paper says 5-shot).

The main score is lm-eval's strict one; a tolerant extraction is beside it, because the strict pattern loses
"(A). " and any answer without its final full stop.
"""

import re
from pathlib import Path

from tokenweight.corpus.files import json_of
from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import HubData
from tokenweight.evaluation.data import Task, is_text, table
from tokenweight.evaluation.harness_tasks import Documents, HarnessBenchmark
from tokenweight.evaluation.samples import Classes, Scored
from tokenweight.recipes.schema import Evaluation

BBH_TASKS = tuple(table("harness")["bbh"])
NO_ANSWER = "[invalid]"  # lm-eval's word for "the pattern matched nothing"
_STRICT = re.compile(r"(?<=the answer is )(.*)(?=.)")  # lm-eval's filter get-answer
_TOLERANT = re.compile(r"the answer is[ \t:]*([^\n]*)", re.IGNORECASE)
_OPTION = re.compile(r"\(?([A-Z])\)(?=\W|$)")
_HEDGED = re.compile(r"\(?[A-Z]\)?\s*(?:,|/|or\b|and\b)\s*\(?[A-Z]\)")  # "(A) or (B)"


class Bbh(HarnessBenchmark):
    name = "bbh"
    metric_version = 2
    folder = "bbh/cot_fewshot"
    prefix = "bbh_cot_fewshot_"
    filtered_by = "get-answer"
    tasks = dict.fromkeys(BBH_TASKS, Task(metric="exact_match", greatest_mean=0.98))
    fewshot_order = "first_n of lm-eval's"
    files = ("{task}.json",)
    layout = "a directory of the 27 official JSON files"
    hub_data = HubData("SaylorTwift/bbh", "b5306be6f827cfafbb545ff5a51f96916029b0fd", "boolean_expressions", "--bbh")

    def splits(self, files: list[Path], evaluation: Evaluation) -> dict[str, Documents]:
        return {"test": read_examples(files[0])}

    def new_tokens(self, task: str, evaluation: Evaluation) -> int:
        return evaluation.bbh.max_new_tokens

    def score(self, task: str, output: str, references: list[str], classes: Classes, evaluation: Evaluation) -> Scored:
        answer = strict_answer(output)
        return Scored(answer, float(answer == references[0]), tolerant_score(output, references[0]))


def read_examples(path: Path) -> Documents:
    """Input and target of each example of one official JSON. UserError: it has another layout."""
    try:
        documents = [{name: example[name] for name in ("input", "target")} for example in json_of(path)["examples"]]
    except (KeyError, TypeError):
        raise UserError(
            f"{path}: not in the official layout; give a file whose examples have input and target"
        ) from None
    if not documents or not all(is_text(text) and text.strip() for document in documents for text in document.values()):
        raise UserError(f"{path}: holds no example, or one whose input or target is not a text; give the official file")
    return documents


def strict_answer(output: str) -> str:
    """What lm-eval's filter takes from an output: after "the answer is ", without the line's last character."""
    found = _STRICT.findall(output)
    return str(found[0]).strip() if found else NO_ANSWER


def tolerant_score(output: str, target: str) -> float:
    """1.0 if the same place has the target, with or without final full stop, spaces, quotes or emphasis around it.

    For options, "(A) 05/01/2021" and "A)" answer "(A)", and "(A) or (B)" neither.
    """
    found, target = _TOLERANT.search(output), target.strip()
    answer = found.group(1).strip().strip("*\"'`").rstrip(". ").strip("*\"'` ") if found else NO_ANSWER
    if answer != target and re.fullmatch(r"\([A-Z]\)", target) and not _HEDGED.match(answer):
        option = _OPTION.match(answer)
        answer = f"({option.group(1) if option else answer})"
    return float(answer == target)
