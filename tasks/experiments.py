"""From what a user names to planned experiments, and from their records to tables. Loads no torch and no Prefect."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.evaluation.model_spec import ModelSpec, find
from tokenweight.evaluation.run import check_backend
from tokenweight.evaluation.units import BENCHMARKS, Evaluate, benchmark_of, in_order, offered, unreachable
from tokenweight.pipeline.archive import check_place, write_records
from tokenweight.pipeline.experiment import Column, Row
from tokenweight.pipeline.manifest import (
    ResolvedExperiment,
    RowEntry,
    StageEntry,
    UnitEntry,
    keep_manifest,
    with_failures,
)
from tokenweight.pipeline.stage import Graph
from tokenweight.pipeline.store import Note, Store
from tokenweight.planning.graph import Planner
from tokenweight.planning.plan import shortened, to_make
from tokenweight.recipes import Inputs
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.recipe import chosen_names
from tokenweight.reports.targets import ALL
from tokenweight.reports.targets.find import find_experiments, models_experiment

PACKED_EVERY_SECONDS = 60.0
REST = 20.0  # times what tables took the last time: seven seconds of a core for one of four thousand units
SHORTEST_TOKENS = 4096  # RULER's first length


def plan_texts(
    texts: Sequence[str], scale: str, inputs: Inputs, store: Store, seeds: int | None = None
) -> tuple[list[ResolvedExperiment], list[str]]:
    """Every experiment that the texts name, planned; what is left out, a line each. UserError for what is no experiment."""
    of_paper = any(text.partition(":")[0] == ALL for text in texts)
    return plan_experiments(find_experiments(texts, scale, inputs, seeds), store, of_paper=of_paper)


def plan_experiments(
    found: Iterable[ResolvedExperiment], store: Store, of_paper: bool = False
) -> tuple[list[ResolvedExperiment], list[str]]:
    """Each planned. Of all of the paper (`of_paper`) those are left out, a line each, that lack a text of the user's own, or
    that the user's corpus leaves nothing to compare; else UserError for the latter."""
    planned, left_out = [], []
    for resolved in found:
        experiment = resolved.manifest.experiment
        if experiment.compares_corpora and "corpus" in resolved.manifest.inputs:
            if not of_paper:
                raise UserError(
                    f"{resolved.name}: compares two corpora, and --corpus would replace both, so that all differences "
                    "were 0; leave --corpus out"
                )
            left_out.append(f"{resolved.name} is left out: it compares two corpora, and --corpus replaces both")
            continue
        one = plan_experiment(resolved, store)
        if of_paper and experiment.own_text and one.graph.missing:
            left_out.append(f"{one.name} is left out: missing {'; '.join(shortened(one.graph.missing))}")
        else:
            planned.append(one)
    return planned, left_out


def plan_experiment(resolved: ResolvedExperiment, store: Store) -> ResolvedExperiment:
    """With the artifacts of all rows, each once, in graph and manifest. UserError for models and data that do not fit."""
    manifest, experiment = resolved.manifest, resolved.manifest.experiment
    graph = Planner(store).graph(resolved.each_recipe, in_order(experiment.benchmarks))
    units = (leaf.stage for leaves in graph.evaluations.values() for leaf in leaves)
    measured = {stage.unit.benchmark for stage in units if isinstance(stage, Evaluate)}
    if (unread := sorted(experiment.benchmarks - measured)) and not graph.missing:
        raise UserError(
            f"{unread[0]}: every length is beyond what the rows read; give shorter ones, or leave {unread[0]} out"
        )
    columns, of_columns = list[Column](), list[str]()
    evaluation, context = resolved.each_recipe[0].evaluation, max(one.context_tokens for one in resolved.each_recipe)
    for column in experiment.columns:
        name = getattr(column.measure, "benchmark", "")  # none of a mean of columns
        shown, said = BENCHMARKS[name].columns(column, evaluation, context) if name else ([column], [])
        columns, of_columns = [*columns, *shown], [*of_columns, *said]
    rows = {row.key: row for row in experiment.rows}
    labels = {resolved.recipes[row.key, 0].name: row.name for row in experiment.rows}
    same = ([labels[recipe] for recipe in recipes if recipe in labels] for recipes in graph.runs.values())
    notes = (f"The same run, made once: {' and '.join(names)}." for names in same if len(names) > 1)
    entries = (_placed(one, rows[one.row], resolved.recipes[one.row, one.seed].name, graph) for one in manifest.rows)
    changes = {
        "experiment": experiment.model_copy(update={"columns": tuple(columns)}),
        "rows": tuple(entries),
        "divergences": (*manifest.divergences, *dict.fromkeys(of_columns), *notes),
    }
    return replace(resolved, graph=graph, manifest=manifest.model_copy(update=changes))


def _placed(entry: RowEntry, row: Row, recipe: str, graph: Graph) -> RowEntry:
    units = [
        UnitEntry(
            unit=stage.unit.id,
            benchmark=stage.unit.benchmark,
            task=stage.unit.task,
            length_tokens=stage.unit.length_tokens,
            address=node.address,
            fingerprint=node.fingerprint,
            n_expected=benchmark_of(stage.unit).n_expected(stage.evaluation),
        )
        for node in graph.evaluations.get(recipe, ())
        if isinstance(stage := node.stage, Evaluate) and row.unit in (None, stage.unit.id)
    ]
    node = graph.trained.get(recipe)
    train = StageEntry(address=node.address, fingerprint=node.fingerprint) if node else None
    return entry.model_copy(update={"units": tuple(units), "train": train})


def plan_models(
    names: Sequence[str],
    how: ModelOptions,
    inputs: Inputs,
    store: Store,
    benchmarks: Sequence[str],
    lengths: Iterable[int] | None,
    check: bool = True,
) -> tuple[ResolvedExperiment, bool]:
    """The evaluation of models by name, planned, and whether anything of it is to be made.

    Lengths None: the longest that all models read, and its halves down to 4,096 tokens. Without `check`, for a look at what
    there is to do, the backend and data need not be here.

    UserError: a model is given twice or cannot be evaluated so, or the backend or data, of which all is named, is missing.
    """
    text = ",".join(benchmarks)
    chosen = chosen_names("benchmarks", text, offered("evaluate", text)) if benchmarks else ()
    if how.endpoint and (len(names) > 1 or how.backend == "vllm"):
        raise UserError(
            f"--endpoint {how.endpoint}: is of one model; give one --model, without --compare and --backend"
        )
    how = how.model_copy(update={"backend": "endpoint"}) if how.endpoint else how
    if how.revision and len(names) > 1:
        raise UserError(f"--revision {how.revision}: is of one model; evaluate that model by itself")
    models = _labelled([find(name, how.revision or None, how.context_tokens) for name in names])
    longest = min(model.base.context_tokens for model in models.values())
    halved = (longest >> times for times in range(longest.bit_length()))
    auto = {longest, *(n for n in halved if n >= SHORTEST_TOKENS)}
    lengths_tokens = tuple(sorted(auto if lengths is None else set(lengths)))
    if how.tensor_parallel > 1 and how.backend != "vllm":
        raise UserError(f"--tensor-parallel {how.tensor_parallel}: works only with --backend vllm; leave it out")
    by_label = {label: model.name for label, model in models.items()}
    spec = models_experiment(by_label, chosen, lengths_tokens=lengths_tokens, limit=how.limit, backend=how.backend)
    bases = {model.name: model.base for model in models.values()}
    (resolved,) = find_experiments([spec], how.scale, inputs, bases=bases)
    if how.endpoint:
        served = {run: one.model_copy(update={"endpoint": how.endpoint}) for run, one in resolved.recipes.items()}
        resolved = replace(resolved, recipes=served)
    planned = plan_experiment(resolved, store)
    stages = [artifact.stage for artifact in to_make(planned.graph, store)]
    if stages and check:
        check_backend(how.backend)
        asked = {stage.unit.benchmark for stage in stages if isinstance(stage, Evaluate)}
        missing = [*shortened(planned.graph.missing), *unreachable(asked, resolved.each_recipe[0].evaluation)]
        if missing:
            raise UserError("missing: " + "; ".join(missing))
    return planned, bool(stages)


def _labelled(models: Sequence[ModelSpec]) -> dict[str, ModelSpec]:
    """Each model by a label of its own; UserError for a model given twice."""
    labelled: dict[str, ModelSpec] = {}
    for model in models:
        if any(model.base == other.base for other in labelled.values()):
            raise UserError(f"--model {model.name}: given twice; give it once")
        label, number = model.label, 2
        while label in labelled:
            label, number = f"{model.label}-{number}", number + 1
        labelled[label] = model
    return labelled


def write_tables(
    planned: ResolvedExperiment, store: Store, out: Path, figures: bool = True, failed: Mapping[str, str] | None = None
) -> dict[str, Path]:
    """Files by kind: the table, its figures and the manifest, which says why recipes failed; see :func:`write_results`."""
    from tokenweight.reports.writing import write_results  # loads pandas

    manifest = with_failures(planned.manifest, failed or {})
    _, files = write_results(manifest, store.root, out, figures=figures)
    keep_manifest(manifest, store.root)  # last: see current_results
    return files


@contextmanager
def packed_as_it_goes(store: Path, file: Path | None) -> Iterator[None]:
    """Pack a store's records into `file` every minute and at the end, for machines that keep nothing.

    UserError where it cannot be written there.
    """
    if file is None:
        yield
        return
    check_place(store, file)

    def pack() -> None:
        with suppress(UserError, OSError):  # what changes meanwhile is packed a minute later
            write_records(store, file)

    try:
        with _meanwhile("records", pack, PACKED_EVERY_SECONDS):
            yield
    finally:
        write_records(store, file)


@contextmanager
def tables_as_they_come(planned: Sequence[ResolvedExperiment], store: Store, out: Path, note: Note) -> Iterator[None]:
    """Write the Markdown table of what is there so far whenever there are more units, until what is run here ends.

    From each experiment's first number on, which is noted. What cannot be written is left to the final table to say.
    """
    began = time.monotonic()
    wanted = {one.name: {unit.address for row in one.manifest.rows for unit in row.units} for one in planned}
    there, shown = _units_there(wanted, store), set[str]()

    def write() -> None:
        from tokenweight.reports.writing import write_unfinished  # loads pandas

        now = _units_there(wanted, store)
        for one in (one for one in planned if now[one.name] > there[one.name]):
            with suppress(UserError, OSError):
                file = write_unfinished(one.manifest, store.root, out, now[one.name], len(wanted[one.name]))
                if file and one.name not in shown:
                    shown.add(one.name)
                    note(f"{one.name}: its first number after {time.monotonic() - began:.0f} s: {file}")
        there.update(now)

    with _meanwhile("tables", write, 1.0, REST):
        yield


def _units_there(wanted: Mapping[str, set[str]], store: Store) -> dict[str, int]:
    """How many of each set of addresses of evaluations the store has."""
    place = store.root / "evaluate"
    held = {f"evaluate/{name}" for name in os.listdir(place)} if place.is_dir() else set[str]()
    return {name: len(held & addresses) for name, addresses in wanted.items()}


@contextmanager
def _meanwhile(name: str, work: Callable[[], object], seconds: float, rest: float = 0.0) -> Iterator[None]:
    """Do `work` in a thread again and again, after pauses of so many seconds, or of `rest` times what it took of a core."""
    ended = threading.Event()

    def repeat() -> None:
        pause = seconds
        while not ended.wait(pause):
            before = time.thread_time()
            work()
            pause = max(seconds, rest * (time.thread_time() - before))

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
