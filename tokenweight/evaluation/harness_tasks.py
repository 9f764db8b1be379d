"""Benchmarks by lm-eval's own task definitions, fed with our local data or with a pinned data set of the hub."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tokenweight.errors import StageError
from tokenweight.evaluation.benchmark import HubData, Unit, UnitRun
from tokenweight.evaluation.data import readable_hub
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.samples import AskedBenchmark, OutputBenchmark, Sample
from tokenweight.recipes.schema import Evaluation

Documents = list[dict[str, Any]]
Chat = Callable[..., str]  # from turns to a prompt, as lm-eval's models have it
SEED = 1234  # lm-eval's default


class OfHarness(AskedBenchmark):
    """What a task of lm-eval asks, as its own run does."""

    @abstractmethod
    def harness_tasks(self, units: Sequence[Unit], evaluation: Evaluation) -> dict[str, Any]:
        """lm-eval's tasks by the units' names of them, with data. UserError: these cannot be loaded."""

    def references(self, task: Any, document: Any) -> list[str]:
        return [str(task.doc_to_target(document))]

    def chat(self, evaluation: Evaluation, model: LoadedModel) -> Chat | None:
        """The template that makes a prompt of a conversation's turns; None: the text is the prompt."""
        return None

    def samples(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel) -> Iterator[Sample]:
        random.seed(0)  # as lm-eval's run begins: some tasks draw from it
        np.random.seed(SEED)
        tasks = self.harness_tasks([run.unit for run in runs], evaluation)
        for unit in (run.unit for run in runs):
            task, new_tokens = tasks[unit.task], self.new_tokens(unit.task, evaluation)
            task.set_fewshot_seed(SEED)
            if new_tokens:
                task.set_config("generation_kwargs", {"max_gen_toks": new_tokens}, update=True)
            for doc_id, document in task.doc_iterator(limit=self.settings(evaluation).samples):
                yield self._sample(unit, task, doc_id, document, evaluation, model)

    def _sample(
        self, unit: Unit, task: Any, doc_id: int, document: Any, evaluation: Evaluation, model: LoadedModel
    ) -> Sample:
        """A document's requests, with as many examples as fit. StageError: a choice does not fit behind its question."""
        references, new_tokens = self.references(task, document), self.new_tokens(unit.task, evaluation)
        chat = self.chat(evaluation, model)
        draws = task.sampler.rnd if hasattr(task, "sampler") else random.Random()
        before, after = draws.getstate(), list[Any]()
        made: dict[str, list[Any]] = {}
        template = {"apply_chat_template": chat is not None, "chat_template": chat}

        def requests(context: Any) -> list[Any]:
            found = task.construct_requests(document, context, metadata=(task.config.task, doc_id, 1), **template)
            return found if isinstance(found, list) else [found]

        @cache
        def prompt_with(shots: int) -> str:
            draws.setstate(before)
            prefix = task.doc_to_prefix(document)
            found = requests(
                task.fewshot_context(document, shots, gen_prefix=prefix, fewshot_as_multiturn=True, **template)
            )
            after.append(draws.getstate())
            longest: str = max((one.args[0] for one in found), key=len)
            made[longest] = found
            return longest

        shots, room = task.config.num_fewshot, new_tokens
        if not new_tokens:
            ends = [one.args[1] for one in made[prompt_with(shots)]]
            room = 1 + max(len(model.lm.tok_encode(end, add_special_tokens=False)) for end in ends)
        prompt = model.fitting(prompt_with, shots, room)
        if chat:
            prompt = replace(prompt, special_tokens=0)  # they are the template's
        draws.setstate(after[0])  # the next document's examples are lm-eval's, whether or not some were left out here
        instances = made[prompt_with(0) if prompt.left_truncated else prompt.text]
        if prompt.left_truncated and len({one.args[0] for one in instances}) == 1:
            instances = requests(prompt.text)
        read = [model.read("".join(one.args)).n_tokens for one in instances] if not new_tokens else [prompt.n_tokens]
        if max(read) + new_tokens > model.context_tokens:
            raise StageError(
                f"{unit.id}: document {doc_id} does not fit {model.context_tokens} tokens with its choices"
            )
        return Sample(unit, doc_id, instances, prompt, references, new_tokens, task=task)


class HarnessBenchmark(OfHarness, OutputBenchmark):
    """A benchmark that lm-eval defines: `folder` of its library, tasks named `prefix` and the unit's task."""

    folder: ClassVar[str]
    prefix: ClassVar[str]
    hub_data: ClassVar[HubData]
    fewshot_order: ClassVar[str]

    @abstractmethod
    def splits(self, files: list[Path], evaluation: Evaluation) -> dict[str, Documents]:
        """Documents of local files by lm-eval's name of their split. UserError: not in their official layout."""

    def references(self, task: Any, document: Any) -> list[str]:
        return [str(document["target"])]

    def protocol(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        return super().protocol(unit, evaluation) | {"fewshot_order": self.fewshot_order}

    def check_data(self, unit: Unit, evaluation: Evaluation, tokenizer_dir: Path | None = None) -> None:
        if files := self.local_files(unit.task, self.settings(evaluation).data):
            self.splits(files, evaluation)

    def harness_tasks(self, units: Sequence[Unit], evaluation: Evaluation) -> dict[str, Any]:
        settings, hub = self.settings(evaluation), self.hub_data
        members = []
        for unit in units:
            member = {"task": self.prefix + unit.task, "num_fewshot": settings.fewshot}
            if files := self.local_files(unit.task, settings.data):
                members.append(member | {"custom_dataset": partial(_in_memory, self.splits(files, evaluation))})
            else:
                members.append(member | {"dataset_path": hub.repo_id, "dataset_kwargs": {"revision": hub.revision}})
        with readable_hub(self.name, hub.repo_id):  # local data are in memory by now
            tasks: dict[str, Any] = task_manager(self.folder).load([{"group": "units", "task": members}])["tasks"]
        return {unit.task: tasks[self.prefix + unit.task] for unit in units}


@lru_cache(maxsize=1024)
def _compiled(template: str) -> Any:
    from lm_eval.utils import env

    return type(env).from_string(env, template)


def library() -> Path:
    """lm-eval's folder of tasks."""
    import lm_eval

    return Path(lm_eval.__file__).parent / "tasks"


@cache
def task_manager(*folders: str) -> Any:
    """Knows the definitions of folders of lm-eval's library, or elsewhere, without the scan of all ("")."""
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import env

    # Each question and each of its examples is a template compiled anew: most of MMLU's time before the model is asked.
    env.from_string = _compiled
    return TaskManager(include_defaults=False, include_path=[str(library() / folder) for folder in folders])


def _in_memory(splits: dict[str, Documents], **_: Any) -> dict[str, Any]:
    """Documents where lm-eval would load a data set (its `custom_dataset`)."""
    from datasets import Dataset
    from datasets.table import InMemoryTable

    # The fingerprint is given, since nothing is cached: to make one, `datasets` pickles the table, which fails beside some
    # installations (Python 3.12 with jax).
    return {name: Dataset(InMemoryTable.from_pylist(documents), fingerprint=name) for name, documents in splits.items()}
