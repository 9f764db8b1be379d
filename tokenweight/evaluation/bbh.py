"""BIG-Bench-Hard by lm-eval's own bbh_cot_fewshot tasks (3 exemplars exist; the paper says 5-shot).

The main score is lm-eval's strict one; a tolerant extraction stands beside it, because the strict pattern loses
"(A). " and any answer without its final full stop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenweight.errors import UserError
from tokenweight.evaluation.samples import Sample, Scored
from tokenweight.evaluation.smoke_data import smoke_eval_dir
from tokenweight.recipes.schema import Bbh

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel

HUB = {"repo_id": "SaylorTwift/bbh", "revision": "b5306be6f827cfafbb545ff5a51f96916029b0fd"}
FOLDER = "bbh/cot_fewshot"
METRIC = "exact_match"
FILTER = "get-answer"
NO_ANSWER = "[invalid]"  # lm-eval's word for "the pattern matched nothing"
_STRICT = re.compile(r"(?<=the answer is )(.*)(?=.)")
_TOLERANT = re.compile(r"the answer is[ \t:]*([^\n]*)", re.IGNORECASE)
_OPTION = re.compile(r"\(?([A-Z])\)(?=\W|$)")


def task_file(bbh: Bbh, task: str) -> list[Path]:
    """The official JSON of a task; empty for hub data.

    Raises:
        UserError: the file is missing.
    """
    if bbh.data == "hub":
        return []
    path = (Path(bbh.data) if bbh.data else smoke_eval_dir() / "bbh") / f"{task}.json"
    if not path.is_file():
        raise UserError(f"evaluation.bbh.data: {path} missing; give a directory of the 27 official JSON files")
    return [path]


def read_examples(path: Path) -> list[dict[str, Any]]:
    """Documents of one official JSON: input and target.

    Raises:
        UserError: not JSON, or not {"examples": [{"input": ..., "target": ...}, ...]}.
    """
    try:
        examples = json.loads(path.read_text(encoding="utf-8"))["examples"]
        documents = [{"input": str(example["input"]), "target": str(example["target"])} for example in examples]
    except ValueError as error:
        raise UserError(f"{path}: is not JSON ({error}); give the official file") from None
    except (KeyError, TypeError):
        raise UserError(f"{path}: not in the official layout; it must hold examples of input and target") from None
    if not documents:
        raise UserError(f"{path}: holds no example; give a complete file")
    return documents


def tasks_samples(names: Sequence[str], bbh: Bbh, harness: LoadedModel) -> dict[str, list[Sample]]:
    """Samples of each task, prompts and stop sequences by lm-eval's task."""
    from tokenweight.evaluation.harness_tasks import LocalSplits, load_tasks, pinned

    overrides: dict[str, dict[str, Any]] = {}
    for name in names:
        overrides[f"bbh_cot_fewshot_{name}"] = {"num_fewshot": bbh.fewshot}
        if files := task_file(bbh, name):
            overrides[f"bbh_cot_fewshot_{name}"]["custom_dataset"] = LocalSplits(test=read_examples(files[0]))
        else:
            overrides[f"bbh_cot_fewshot_{name}"] |= pinned(HUB)
    tasks = load_tasks(FOLDER, overrides)
    for task in tasks.values():
        task.set_config("generation_kwargs", {"max_gen_toks": bbh.max_new_tokens}, update=True)
    return {
        name: [
            _sample(tasks[f"bbh_cot_fewshot_{name}"], index, document, bbh, harness)
            for index, document in enumerate(islice(tasks[f"bbh_cot_fewshot_{name}"].eval_docs, bbh.samples))
        ]
        for name in names
    }


def _sample(task: Any, doc_id: int, document: dict[str, Any], bbh: Bbh, harness: LoadedModel) -> Sample:
    prompt = harness.fitting(
        lambda k: str(task.fewshot_context(document, num_fewshot=k)), bbh.fewshot, new_tokens=bbh.max_new_tokens
    )
    instance = task.construct_requests(doc=document, ctx=prompt.text, metadata=(task.config.task, doc_id, 1))

    def score(answers: list[str]) -> Scored:
        instance.resps = list(answers)
        task._instances = [instance]
        task.apply_filters()
        filtered = str(instance.filtered_resps[FILTER])
        return Scored(
            output=answers[0],
            filtered=filtered,
            reference=json.dumps([document["target"]]),
            metric=METRIC,
            score=float(task.process_results(document, [filtered])[METRIC]),
            tolerant_score=tolerant_score(answers[0], document["target"]),
        )

    return Sample(
        doc_id,
        [instance],
        prompt.n_tokens,
        prompt.untruncated_tokens,
        prompt.truncated,
        None,
        bbh.max_new_tokens,
        score,
        prompt.bos_tokens,
        prompt.left_truncated,
    )


def strict_answer(output: str) -> str:
    """What lm-eval's filter takes from an output: after "the answer is ", without the line's last character."""
    found = _STRICT.findall(output)
    return str(found[0]).strip() if found else NO_ANSWER


def tolerant_answer(output: str) -> str:
    """The same place, with or without final full stop, spaces, quotes or emphasis around it."""
    found = _TOLERANT.search(output)
    return found.group(1).strip().strip("*\"'`").rstrip(". ").strip("*\"'` ") if found else NO_ANSWER


def tolerant_score(output: str, target: str) -> float:
    """1.0 if the tolerant answer is the target; for options, "(A) 05/01/2021" and "A)" answer "(A)"."""
    answer = tolerant_answer(output)
    if answer == target.strip():
        return 1.0
    if re.fullmatch(r"\([A-Z]\)", target.strip()):
        option = _OPTION.match(answer)
        letter = option.group(1) if option else answer
        return float(f"({letter})" == target.strip())
    return 0.0
