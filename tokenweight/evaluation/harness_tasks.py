"""Benchmarks by lm-eval's own task definitions, fed with our local data or with a pinned data set of the hub."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from tokenweight.evaluation.benchmark import HubData, Unit, UnitRun
from tokenweight.evaluation.data import readable_hub
from tokenweight.evaluation.loaded_model import LoadedModel, quiet_harness
from tokenweight.evaluation.samples import AskedBenchmark, Sample
from tokenweight.recipes.schema import Evaluation

Documents = list[dict[str, Any]]


class HarnessBenchmark(AskedBenchmark):
    """A benchmark that lm-eval defines: `folder` of its library, tasks named `prefix` and the unit's task."""

    folder: ClassVar[str]
    prefix: ClassVar[str]
    hub_data: ClassVar[HubData]
    fewshot_order: ClassVar[str]

    @abstractmethod
    def splits(self, files: list[Path], evaluation: Evaluation) -> dict[str, Documents]:
        """Documents of local files by lm-eval's name of their split. UserError: not in their official layout."""

    def references(self, document: dict[str, Any]) -> list[str]:
        return [str(document["target"])]

    def protocol(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        return super().protocol(unit, evaluation) | {"fewshot_order": self.fewshot_order}

    def samples(self, runs: Sequence[UnitRun], evaluation: Evaluation, model: LoadedModel) -> Iterator[Sample]:
        """Prompts, stop sequences and choices by lm-eval's task, as many examples as fit."""
        settings, tasks = getattr(evaluation, self.name), self.harness_tasks([run.unit for run in runs], evaluation)
        for unit in (run.unit for run in runs):
            task, new_tokens = tasks[self.prefix + unit.task], self.new_tokens(unit.task, evaluation)
            for doc_id, document in enumerate(islice(task.eval_docs, settings.samples)):
                with_shots = partial(task.fewshot_context, document)
                prompt = model.fitting(with_shots, settings.fewshot, new_tokens or 2)  # 2: a choice's letter
                name = task.config.task, doc_id, 1
                requests = task.construct_requests(doc=document, ctx=prompt.text, metadata=name)
                instances = requests if isinstance(requests, list) else [requests]
                yield Sample(unit, doc_id, instances, prompt, self.references(document), new_tokens)

    def harness_tasks(self, units: Sequence[Unit], evaluation: Evaluation) -> dict[str, Any]:
        """lm-eval's tasks by name, on our data. UserError: a data set of the hub cannot be loaded."""
        settings, hub = getattr(evaluation, self.name), self.hub_data
        members = []
        for unit in units:
            member = {"task": self.prefix + unit.task, "num_fewshot": settings.fewshot}
            if files := self.local_files(unit.task, settings.data):
                members.append(member | {"custom_dataset": partial(_in_memory, self.splits(files, evaluation))})
            else:
                members.append(member | {"dataset_path": hub.repo_id, "dataset_kwargs": {"revision": hub.revision}})
        with quiet_harness(), readable_hub(self.name, hub.repo_id):  # local data are in memory by now
            tasks: dict[str, Any] = _manager(self.folder).load([{"group": "units", "task": members}])["tasks"]
        for unit in units:
            if new_tokens := self.new_tokens(unit.task, evaluation):
                task = tasks[self.prefix + unit.task]
                task.set_config("generation_kwargs", {"max_gen_toks": new_tokens}, update=True)
        return tasks


@lru_cache(maxsize=1024)
def _compiled(template: str) -> Any:
    from lm_eval.utils import env

    return type(env).from_string(env, template)


@cache
def _manager(folder: str) -> Any:
    """Knows the definitions of one folder, without the scan of lm-eval's whole task library."""
    import lm_eval
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import env

    # Each question and each of its examples is a template compiled anew: most of MMLU's time before the model is asked.
    env.from_string = _compiled
    return TaskManager(include_defaults=False, include_path=str(Path(lm_eval.__file__).parent / "tasks" / folder))


def _in_memory(splits: dict[str, Documents], **_: Any) -> dict[str, Any]:
    """Documents where lm-eval would load a data set (its `custom_dataset`)."""
    from datasets import Dataset
    from datasets.table import InMemoryTable

    # The fingerprint is given, since nothing is cached: to make one, `datasets` pickles the table, which fails beside some
    # installations (Python 3.12 with jax).
    return {name: Dataset(InMemoryTable.from_pylist(documents), fingerprint=name) for name, documents in splits.items()}
