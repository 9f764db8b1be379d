"""The dry run: which of a graph's artifacts would be made now, why, and whether they can be. Loads no torch."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tokenweight.context.extend import Extend, load_config
from tokenweight.corpus.sources import check, check_outside, check_split, not_read
from tokenweight.corpus.stages import Chunk
from tokenweight.errors import UserError
from tokenweight.evaluation.run import StoredOutputs, check_backend
from tokenweight.evaluation.units import Evaluate, UnitStage, benchmark_of
from tokenweight.files import check_limits, check_writable
from tokenweight.optional import check_room
from tokenweight.pipeline.digests import refuse_listing
from tokenweight.pipeline.stage import Artifact, Graph
from tokenweight.pipeline.store import Store, locate
from tokenweight.recipes.execution import check_batch
from tokenweight.recipes.schema import Corpus, Execution
from tokenweight.training.checkpoints import FOLDER, check_resume, last_complete
from tokenweight.training.stages import Pretrain, Score, Train

_SHOWN = 4  # missing files of a setting
SHARED = "what members share"  # a run that is no recipe's


@dataclass(frozen=True)
class PlanEntry:
    artifact: Artifact
    action: Literal["run", "reuse", "wait"]
    reason: str


def schedule(graph: Graph, store: Store) -> list[PlanEntry]:
    """For each artifact whether it would be made now, and why; one that nothing to be made needs is left alone."""
    needed = {leaf for leaves in graph.evaluations.values() for leaf in leaves}
    outputs, entries = StoredOutputs(store), list[PlanEntry]()
    for artifact in reversed(graph.artifacts):
        state = store.state(artifact.identity)
        gone = state.kind == "weights removed"
        if state.kind == "complete":
            entries.append(PlanEntry(artifact, "reuse", state.reason))
        elif artifact not in needed:
            reason = f"{state.reason}; nothing that runs needs it" if gone else "nothing that runs needs it"
            entries.append(PlanEntry(artifact, "reuse", reason))
        else:
            reason = f"damaged: {state.reason}" if state.kind == "damaged" else state.reason
            reason += "; something that runs needs them, so it is made again" if gone else ""
            parents = artifact.parents
            if isinstance(artifact.stage, Evaluate) and outputs.of(artifact.identity):
                reads_classes = benchmark_of(artifact.stage.unit).classes_in_prompts  # trec's
                parents = (artifact.inputs["prepared"],) if reads_classes else ()
                reason = "its outputs are in the store: scored again, without the model"
            needed.update(parents)
            entries.append(PlanEntry(artifact, "wait" if state.kind == "being made" else "run", reason))
    return entries[::-1]


def to_make(graph: Graph, store: Store) -> list[Artifact]:
    """What the store lacks of what a graph's recipes need, also where another run makes it now."""
    return [entry.artifact for entry in schedule(graph, store) if entry.action != "reuse"]


def shared_to_make(graph: Graph, store: Store) -> list[Artifact]:
    """What several runs need and the store lacks: texts, prompts, base, scores."""
    counts = Counter(artifact for run in graph.runs for artifact in to_make(graph.part([run]), store))
    return [artifact for artifact in graph.artifacts if counts[artifact] > 1]


def graph_of(graph: Graph, run: str, store: Store) -> Graph:
    """The artifacts of one run, or of SHARED. UserError for another name."""
    if run == SHARED:
        return Graph(artifacts=graph.artifacts, evaluations={SHARED: shared_to_make(graph, store)}).part([SHARED])
    if run not in graph.runs:
        raise UserError(f"run {run!r}: is not in the experiment; choose one of {', '.join(graph.runs)}")
    return graph.part([run])


def to_run(entries: Iterable[PlanEntry]) -> list[Artifact]:
    return [entry.artifact for entry in entries if entry.action == "run"]


def check_before_running(graphs: Sequence[Graph], store: Store, execution: Execution) -> list[str]:
    """What of the corpora will not be read, a line for each directory, before the first of several plans is run.

    Raises UserError for all that can be known to be wrong, the data included.
    """
    check_limits()
    check_writable("--store", store.root)
    for graph in graphs:
        check_inputs(graph)
    corpora, data = dict[Corpus, None](), dict[Any, tuple[UnitStage, Artifact | None]]()
    lines = dict[str, None]()
    for entries in [schedule(graph, store) for graph in graphs]:
        check_execution(entries, store, execution)
        for artifact in to_run(entries):
            for field, path in artifact.sources.items():
                refuse_listing(field, Path(path or ""))
            stage = artifact.stage.placed(artifact.sources)
            if isinstance(stage, Chunk):
                lines |= dict.fromkeys(not_read(stage.corpus).values())
                if stage.chunking.mixture != "as_is":
                    corpora[stage.corpus] = None
            elif isinstance(stage, Extend | Score) and (here := artifact.inputs["model"].sources.get("sha256")):
                load_config(Path(here))  # has RoPE: said before a corpus is read
            elif isinstance(stage, UnitStage) and any(artifact.sources.values()):  # not shipped
                tokenizer = artifact.inputs.get("tokenizer")
                data[stage.unit, tokenizer, *artifact.sources.items()] = stage, tokenizer
    located = cache(lambda tokenizer: locate(tokenizer, store, small=True))
    for stage, tokenizer in data.values():
        directory = located(tokenizer) if tokenizer else None
        benchmark_of(stage.unit).check_data(stage.unit, stage.evaluation, directory)
    for corpus in corpora:
        check(corpus)
    return list(lines)


def check_texts(entries: Iterable[PlanEntry]) -> None:
    """Of :func:`check_before_running` what is quick: UserError where a corpus that is here leaves nothing to train on."""
    for artifact in to_run(entries):
        if isinstance(artifact.stage, Chunk) and artifact.stage.chunking.mixture != "as_is":
            check_split(artifact.stage.placed(artifact.sources).corpus)


def check_inputs(graph: Graph) -> None:
    """Raise UserError naming all inputs that are not there, before anything runs."""
    if graph.missing:
        raise UserError("missing: " + "; ".join(shortened(graph.missing)))


def shortened(missing: Iterable[str]) -> list[str]:
    """Of several lines about the same setting one, with the first files that it lacks: MMLU alone has 114."""
    by_setting: dict[tuple[str, str], dict[str, None]] = {}
    for line in missing:
        what, is_missing, way = line.partition(" missing; ")
        setting, _, files = what.partition(": ")
        by_setting.setdefault((setting, is_missing + way), {}).update(dict.fromkeys(files.split(", ")))
    lines = []
    for (setting, way), found in by_setting.items():
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        lines.append(f"{setting}: {', '.join(list(found)[:_SHOWN])}{more}{way}")
    return lines


def check_execution(entries: Iterable[PlanEntry], store: Store, execution: Execution) -> None:
    """Raise UserError where what would run, or resume, cannot: by the execution, a store in its corpus, or for want of a room."""
    for artifact in to_run(entries):
        stage = artifact.stage
        if getattr(stage, "parity", "paper") == "authors":
            check_room("authors_compat", "parity")
        if isinstance(stage, Chunk):
            check_outside("--store", store.root, stage.placed(artifact.sources).corpus)
        if isinstance(stage, Train | Pretrain):
            check_batch(stage.training, execution, "training" if isinstance(stage, Train) else "base.training")
            left = store.partial(artifact.identity)
            checkpoint, _ = last_complete(left / FOLDER)
            if checkpoint is not None and not (left / "model").is_dir():
                check_resume(checkpoint, execution)
        if isinstance(stage, Train) and stage.scorer and stage.scorer.precision == "fp8":
            check_room("fp8", "scorer.precision")
        if isinstance(stage, Evaluate):
            if execution.tensor_parallel > 1 and stage.evaluation.backend != "vllm":
                raise UserError("execution.tensor_parallel: works only with backend vllm; with hf set it to 1")
            check_backend(stage.evaluation.backend, execution)
