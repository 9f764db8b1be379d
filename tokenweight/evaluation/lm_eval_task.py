"""`lm_eval:TASK`, any task, group or tag of lm-eval: its own prompts, filters and metrics, under this project's guards.

`lm_eval:TASK:METRIC` and `lm_eval:TASK:METRIC:FILTER` choose the score; without, it is the first metric that is a mean over
samples, behind the first filter. Prompts, answers and scores are those of lm-eval's own run (`simple_evaluate`).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import cache, partial
from glob import glob
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import HubData, Unit, version
from tokenweight.evaluation.data import Task, readable_hub, smoke_eval_dir, table
from tokenweight.evaluation.harness_tasks import Chat, OfHarness, library, task_manager
from tokenweight.evaluation.loaded_model import LoadedModel
from tokenweight.evaluation.rows import sha256_text
from tokenweight.evaluation.samples import Sample, Scored
from tokenweight.pipeline.experiment import Column
from tokenweight.pipeline.measures import SampleMean, UnitMean
from tokenweight.recipes.schema import Evaluation, LmEval

SETTING = "evaluation.lm_eval"


class LmEvalTask(OfHarness):
    name = "lm_eval"
    is_family = True
    prefix = ""
    tasks: ClassVar[Mapping[str, Task]] = defaultdict(partial(Task, metric=""))  # lm-eval knows what they are

    @classmethod
    @cache
    def member(cls, task: str) -> Self:
        made = cls()
        made.name, made.is_family = f"{cls.name}:{task}", False
        return made

    @property
    def asked(self) -> str:
        """Without metric and filter."""
        return ":".join(self.name.split(":")[:2])

    def _known(self, evaluation: Evaluation) -> Known:
        return _known(self.name, self.settings(evaluation))

    def units(self, evaluation: Evaluation, context_tokens: int) -> list[Unit]:
        """One for each task. UserError: there is none, one cannot be run here, or there is no such metric or filter."""
        tasks = [] if self.is_family else list(self._known(evaluation).tasks)
        if longest := [task for task in tasks if self.new_tokens(task, evaluation) >= context_tokens]:
            raise UserError(
                f"{self.name}: an answer of {longest[0]} may fill the context of {context_tokens} tokens; give less with "
                f"--set {SETTING}.max_new_tokens=N"
            )
        return [Unit(self.name, task) for task in tasks]

    def columns(self, column: Column, evaluation: Evaluation, context_tokens: int) -> tuple[list[Column], list[str]]:
        """Shares are averaged over all samples, in percent; else a column for each task, in the metric's own unit."""
        known, shown = self._known(evaluation), list[Column]()
        is_share, filtered = known.metric in table("harness")["shares"], known.filter.removeprefix("none")
        words = f"({known.metric}, {filtered})" if filtered else f"({known.metric})"
        for number, task in enumerate([known.name] if is_share else known.tasks):
            measure = SampleMean(benchmark=self.name) if is_share else UnitMean(benchmark=self.name, task=task)
            label = f"{task} {words}" if column.label == self.name else column.label
            key = f"{column.key}-{number}" if number else column.key
            shown.append(column.model_copy(update={"key": key, "label": label, "measure": measure}))
        unit, better = "in percent" if is_share else "in its own unit", "higher" if known.higher else "lower"
        note = f"{known.name}: {known.metric} by lm-eval {version('lm-eval')}, {unit}; {better} is better."
        note += (
            f" Its {len(known.tasks)} tasks are averaged over all samples." if is_share and len(known.tasks) > 1 else ""
        )
        return shown, [note]

    # --- identity ---

    def metric(self, task: str, evaluation: Evaluation) -> str:
        return self._known(evaluation).metric

    def settings_of(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        """Its own, without a folder that the unit reads nothing of."""
        known = self._known(evaluation)
        unread = {} if known.is_own else {"include_path": None}
        unread |= {} if known.tasks[unit.task].local_data else {"data": None}
        return {"lm_eval": self.settings(evaluation).model_copy(update=unread)}

    def raw_files(self, unit: Unit, evaluation: Evaluation) -> dict[str, list[Path]]:
        """Data in place of the hub's; of tasks of the user's own Python files beside the YAML file (which the protocol has),
        and data that it names."""
        known, task = self._known(evaluation), self._known(evaluation).tasks[unit.task]
        files = [*task.folder.glob("*.py"), *task.data_files]
        if missing := [str(file) for file in files if not file.is_file()]:
            raise UserError(f"{self.name}: {', '.join(missing)} missing; correct dataset_kwargs of {unit.task}")
        local = {"lm_eval.data": _files(task.local_data)} if task.local_data else {}
        return local | ({"lm_eval.include_path": sorted(files)} if known.is_own else {})

    def reads_shipped(self, evaluation: Evaluation) -> bool:
        found = (task.local_data for task in self._known(evaluation).tasks.values())
        return self.settings(evaluation).data is None and any(found)

    def hub(self, evaluation: Evaluation) -> HubData | None:
        """Of the first task that reads the hub."""
        tasks = [] if self.is_family else self._known(evaluation).tasks.values()
        return next((task.hub_data for task in tasks if task.hub_data), None)

    def protocol(self, unit: Unit, evaluation: Evaluation) -> dict[str, Any]:
        known = self._known(evaluation)
        said = {"task": known.tasks[unit.task].without_places(), "filter": known.filter}
        said["chat_template"] = self.settings(evaluation).chat_template
        return super().protocol(unit, evaluation) | said

    def new_tokens(self, task: str, evaluation: Evaluation) -> int:
        own, most = self._known(evaluation).tasks[task].new_tokens, self.settings(evaluation).max_new_tokens
        return min(own, most or own)

    # --- asking and scoring ---

    def chat(self, evaluation: Evaluation, model: LoadedModel) -> Chat | None:
        if not self.settings(evaluation).chat_template:
            return None
        if not model.lm.tokenizer.chat_template:
            raise UserError(f"{SETTING}.chat_template: the model's tokenizer has none; leave --apply-chat-template out")
        template: Chat = model.lm.apply_chat_template
        return template

    def harness_tasks(self, units: Sequence[Unit], evaluation: Evaluation) -> dict[str, Any]:
        known, fewshot = self._known(evaluation), self.settings(evaluation).fewshot
        with readable_hub("lm_eval", known.name), in_place_of_hub(self.settings(evaluation)):
            tasks: dict[str, Any] = known.manager.load([known.name])["tasks"]
        for task in tasks.values():
            own = task.get_config("num_fewshot")  # a task that says 0 has its reasons: so does lm-eval
            task.set_config("num_fewshot", own or 0 if fewshot is None or own == 0 else fewshot)
        return tasks

    def answered(self, sample: Sample, answers: list[Any], evaluation: Evaluation) -> tuple[str, Scored]:
        """Filtered and scored by lm-eval's task; of choices the most likely one's number is kept beside."""
        known, task, instances = self._known(evaluation), sample.task, sample.instances
        for instance, answer in zip(instances, answers, strict=True):
            instance.resps = [answer]
        task._instances = instances
        task.apply_filters()
        filtered = [instance.filtered_resps[known.filter] for instance in instances]
        score = float(task.process_results(instances[0].doc, filtered)[known.metric])
        if sample.new_tokens:
            return answers[0], Scored(str(filtered[0]), score)
        output = json.dumps([[float(nats), bool(is_greedy)] for nats, is_greedy in answers])
        return output, Scored(str(max(range(len(answers)), key=lambda choice: answers[choice][0])), score)


# --- what lm-eval says of a task, without its data -----------------------------------------------


def _local_data(settings: LmEval, repo_id: str) -> Path | None:
    """The directory that is read in place of a data set of the hub."""
    root = smoke_eval_dir() / "hub" if settings.data is None else Path(settings.data)
    found = root / repo_id
    return found if settings.data != "hub" and repo_id.count("/") == 1 and found.is_dir() else None


def _files(directory: Path) -> list[Path]:
    return sorted(file for file in directory.rglob("*") if file.is_file())


def _state(directory: Path) -> str:
    """Changes with the files: `datasets` gives again what a directory of that name had, where a card names subsets."""
    files = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in _files(directory)]
    return sha256_text(repr(files))[:16]


def _column(dtype: str, sequence: bool = False) -> Any:
    from datasets import List, Value

    return List(Value(dtype)) if sequence else Value(dtype)


@contextmanager
def in_place_of_hub(settings: LmEval) -> Iterator[None]:
    """What a task loads by its name on the hub comes from the local directory that has it, whichever function asks for it."""
    import datasets

    load = datasets.load_dataset

    def load_here(path: str, *args: Any, **kwargs: Any) -> Any:
        local = _local_data(settings, path)
        if local is not None:
            kwargs["cache_dir"] = str(Path(datasets.config.HF_DATASETS_CACHE) / f"tokenweight-{_state(local)}")
        kwargs = {key: value for key, value in kwargs.items() if local is None or key != "revision"}
        if features := kwargs.get("features"):  # as InfiniteBench's file has them, which `datasets` reads no more
            kwargs["features"] = datasets.Features({name: _column(**said) for name, said in features.items()})
        return load(path if local is None else str(local), *args, **kwargs)

    datasets.load_dataset = load_here
    try:
        yield
    finally:
        datasets.load_dataset = load


class TaskDefinition:
    """A task by its YAML file, in which functions are texts. UserError: it cannot be run here."""

    def __init__(self, config: dict[str, Any], file: Path | None, benchmark: str, settings: LmEval) -> None:
        from datasets.data_files import sanitize_patterns
        from lm_eval.models.utils import normalize_gen_kwargs

        self.config, self.name, self.folder = config, config["task"], (file or Path("none")).parent
        self.kind, kwargs = config.get("output_type", "generate_until"), config.get("dataset_kwargs") or {}
        generation = normalize_gen_kwargs(config.get("generation_kwargs") or {})
        refused = {
            "is written in Python, not as a YAML file": "class" in config,
            f"asks for {self.kind}": self.kind not in ("generate_until", "loglikelihood", "multiple_choice"),
            "reads more than text": config.get("doc_to_image") or config.get("doc_to_audio"),
            "samples its answers": generation.get("do_sample") or config.get("repeats", 1) > 1,
        }
        if reasons := [reason for reason, is_so in refused.items() if is_so]:
            raise UserError(f"{benchmark}: {self.name} {reasons[0]}, which is not supported; choose another task")
        if config.get("unsafe_code") and not settings.unsafe_code:
            raise UserError(
                f"{benchmark}: the scores of {self.name} may run code that the model writes; allow it with "
                f"--set {SETTING}.unsafe_code=true, or choose another task"
            )
        self.new_tokens = int(generation["max_gen_toks"]) if self.kind == "generate_until" else 0
        self.filters = [one["name"] for one in config.get("filter_list") or [{"name": "none"}]]
        path, splits = str(config.get("dataset_path") or ""), sanitize_patterns(kwargs.get("data_files") or [])
        named = [file for files in splits.values() for file in files] + [f"{path}/**"] * bool(
            path and Path(path).is_dir()
        )
        found = [Path(file) for name in named for file in glob(name, recursive=True) or [name]]
        self.data_files = [file for file in found if not file.is_dir()]
        self.local_data, self.hub_data = _local_data(settings, path), None
        if path and not self.local_data and not self.data_files and not config.get("custom_dataset"):
            revision, option = kwargs.get("revision") or "main", f"--set {SETTING}.data=DIR, which has {path}"
            self.hub_data = HubData(path, revision, config.get("dataset_name"), option)

    def metrics(self) -> dict[str, bool | None]:
        """Whether a higher value is better, of each metric; None of those that are no mean over samples."""
        from lm_eval.api import metrics as registered  # the import registers them
        from lm_eval.api.registry import DEFAULT_METRIC_REGISTRY, get_metric_aggregation, is_higher_better

        found = {}
        for one in self.config.get("metric_list") or [{"metric": one} for one in DEFAULT_METRIC_REGISTRY[self.kind]]:
            name = str(one["metric"]).rpartition(".")[2]  # of a function the path comes before
            is_mean = one.get("aggregation", get_metric_aggregation(name)) in ("mean", registered.mean)
            found[name] = bool(one.get("higher_is_better", is_higher_better(name))) if is_mean else None
        return found

    def without_places(self) -> Any:
        """The file's content; where files lie is no part of it."""
        text = json.dumps(self.config, default=str)
        for place in (*(f"{file.parent}/" for file in self.data_files), f"{self.folder}/", f"{library()}/"):
            text = text.replace(place, "")
        return json.loads(text)


@dataclass(frozen=True)
class Known:
    """What the name of a benchmark means."""

    manager: Any  # lm-eval's, which loads `name`
    name: str
    tasks: dict[str, TaskDefinition]
    metric: str
    filter: str
    higher: bool | None  # whether that is better
    is_own: bool  # a task is the user's


@cache
def _known(benchmark: str, settings: LmEval) -> Known:
    """UserError: there is no such task, metric or filter, or it cannot be run here."""
    _, name, metric, filter_name = [*benchmark.split(":", 3), "", ""][:4]
    include_path = settings.include_path
    if include_path and not Path(include_path).is_dir():
        raise UserError(f"{SETTING}.include_path: {include_path} is not a directory; give one with YAML files of tasks")
    if settings.data not in (None, "hub") and not Path(str(settings.data)).is_dir():
        raise UserError(
            f"{SETTING}.data: {settings.data} is not a directory; give one that has ORG/NAME of the hub, or hub"
        )
    own = Path(include_path).resolve() if include_path else None
    manager = _manager(name, own)
    if name not in manager.task_index:
        raise UserError(f"{benchmark}: lm-eval {version('lm-eval')} has no {name}; see `lm-eval ls tasks`")
    tasks = {task: TaskDefinition(*said, benchmark, settings) for task, said in _configs(manager, name).items()}
    metrics = [task.metrics() for task in tasks.values()]
    means = [one for one in metrics[0] if all(others.get(one) is not None for others in metrics)]
    if not means or (metric and metric not in means):
        refused = metric or ", ".join(metrics[0])
        choices = f"choose from {', '.join(means)}" if means else "its tasks have no other in common"
        raise UserError(f"{benchmark}: {refused} is not a mean over samples that each of its tasks has; {choices}")
    metric, filters = metric or means[0], next(iter(tasks.values())).filters
    filter_name = filter_name or filters[0]
    if not all(filter_name in task.filters for task in tasks.values()):
        raise UserError(f"{benchmark}: {filter_name} is not a filter of each task; choose from {', '.join(filters)}")
    is_own = own is not None and any(task.folder.is_relative_to(own) for task in tasks.values())
    return Known(manager, name, tasks, metric, filter_name, metrics[0][metric], is_own)


def _manager(name: str, own: Path | None) -> Any:
    """lm-eval's TaskManager of the folders that name a task; of the whole library, which takes 15 s, where a group needs it."""
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    found = (file for file in library().rglob("*.yaml") if word.search(file.read_text("utf-8")))
    folders = {file.relative_to(library()).parts[0] for file in found}
    given = [str(own)] if own else []
    manager = task_manager(*sorted(folders, reverse=True), *given)  # of two files with one name the first counts
    return manager if _is_complete(manager.task_index, name) or not (folders or own) else task_manager("", *given)


def _is_complete(index: Mapping[str, Any], name: Any) -> bool:
    entry = index.get(name) if isinstance(name, str) else None
    members = entry.cfg["task"] if entry and entry.kind.name == "GROUP" else []
    names = (one if isinstance(one, str) else one.get("task", one.get("group")) for one in members)
    return entry is not None and all(_is_complete(index, one) for one in names)


def _configs(manager: Any, name: str) -> dict[str, tuple[dict[str, Any], Path | None]]:
    """What lm-eval would make each task of, and its file: by its own factory, which loads neither data nor functions."""
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.tasks._factory import TaskFactory

    class Unmade(ConfigurableTask):  # type: ignore[misc]
        def __init__(self, config: dict[str, Any], file: Path | None = None) -> None:
            self._config, self.said = SimpleNamespace(task=config["task"]), (config, file)

    class Factory(TaskFactory):  # type: ignore[misc]
        def _build_task(self, entry: Any, overrides: dict[str, Any] | None) -> Any:
            return Unmade(self._load_full_config(entry, overrides), entry.yaml_path)

        def _load_full_config(self, entry: Any, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
            return {**deepcopy(entry.cfg), **(overrides or {})}

    manager = copy(manager)
    manager._factory = Factory()
    return {task: made.said for task, made in manager.load([name])["tasks"].items()}
