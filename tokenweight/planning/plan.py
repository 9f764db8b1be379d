"""The dry run: which of a graph's artifacts would be made now, why, and whether they can be. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenweight.errors import UserError
from tokenweight.evaluation.rescoring import StoredOutputs
from tokenweight.evaluation.vllm_check import check_vllm
from tokenweight.pipeline import Store
from tokenweight.pipeline.listing import refuse_listing
from tokenweight.planning.graph import Graph
from tokenweight.recipes.schema import Execution, FilesCorpus
from tokenweight.stages import ChunkWork, EvaluateWork, Node, PrepareWork, PretrainWork, TrainWork
from tokenweight.training.checkpoints import FOLDER, check_resume, last_whole
from tokenweight.training.launch_check import check_batch


@dataclass(frozen=True)
class Step:
    """One artifact in a plan."""

    node: Node
    action: Literal["run", "reuse", "wait"]
    reason: str


def schedule(graph: Graph, store: Store) -> list[Step]:
    """For each artifact whether it would be made now, and why; one that nothing to be made needs is left alone."""
    leaves = {node for nodes in graph.evaluations.values() for node in nodes}
    needed: dict[Node, bool] = dict.fromkeys(graph.nodes, False)
    outputs = StoredOutputs(store)
    steps = []
    for node in reversed(graph.nodes):
        state = store.state(node.identity)
        if state.kind == "whole":
            steps.append(Step(node, "reuse", state.reason))
            continue
        if node not in leaves and not needed[node]:
            gone = f"{state.reason}; " if state.kind == "stripped" else ""
            steps.append(Step(node, "reuse", f"{gone}nothing that runs needs it"))
            continue
        action: Literal["run", "wait"] = "wait" if state.kind == "held" else "run"
        reason = f"damaged: {state.reason}" if state.kind == "damaged" else state.reason
        if state.kind == "stripped":
            reason += "; something that runs needs them, so it is made again"
        parents = node.inputs
        if isinstance(node.work, EvaluateWork) and outputs.of(node.identity):
            parents = node.work.prepared if node.work.unit.benchmark == "longbench" else ()  # trec's classes
            reason = "its outputs are in the store: scored again, without the model"
        for parent in parents:
            needed[parent] = True
        steps.append(Step(node, action, reason))
    return steps[::-1]


def check_before_running(
    graphs: Sequence[Graph], store: Store, execution: Execution, plans: Sequence[Sequence[Step]] | None = None
) -> None:
    """Raise UserError for all that can be known to be wrong before the first of several plans is run.

    `plans` are the schedules of the graphs where they are there already.
    """
    for graph in graphs:
        check_inputs(graph)
    plans = plans or [schedule(graph, store) for graph in graphs]
    for steps in plans:
        check_execution(steps, execution)
        check_checkpoints(steps, store, execution)
    check_listings(step for steps in plans for step in steps)
    check_texts(step for steps in plans for step in steps)


def check_inputs(graph: Graph) -> None:
    """Raise UserError naming all inputs that are not there, before anything runs."""
    if graph.missing:
        raise UserError("missing: " + "; ".join(shortened(graph.missing)))


def shortened(missing: Iterable[str]) -> list[str]:
    """Of several lines about the same setting the first, and how many there are: MMLU alone has 114 files."""
    by_setting: dict[str, list[str]] = {}
    for line in missing:
        by_setting.setdefault(line.partition(":")[0], []).append(line)
    return [lines[0] + (f" (so for {len(lines)} tasks)" if len(lines) > 1 else "") for lines in by_setting.values()]


def check_listings(steps: Iterable[Step]) -> None:
    """Raise UserError where something would be evaluated on data of which there are digests alone."""
    for step in steps:
        if step.action == "run" and isinstance(step.node.work, EvaluateWork | PrepareWork):
            evaluation, benchmark = step.node.work.evaluation, step.node.work.unit.benchmark
            if benchmark == "mmlu" and evaluation.mmlu.data:
                refuse_listing("evaluation.mmlu.data", Path(evaluation.mmlu.data))
            if benchmark in ("perplexity", "pmi", "phrase") and isinstance(evaluation.perplexity.corpus, FilesCorpus):
                refuse_listing("evaluation.perplexity.corpus.path", Path(evaluation.perplexity.corpus.path))


def check_texts(steps: Iterable[Step]) -> None:
    """Read the texts that would be chunked once, so that a bad file is named before anything is started."""
    from tokenweight.corpus.sources import check

    corpora = [
        step.node.work.corpus for step in steps if step.action == "run" and isinstance(step.node.work, ChunkWork)
    ]
    for corpus in dict.fromkeys(corpora):
        check(corpus)


def check_execution(steps: Iterable[Step], execution: Execution) -> None:
    """Raise UserError where what would run cannot: training as the execution says, or evaluation by vllm, where it is not."""
    for step in steps:
        if step.action != "run":
            continue
        match step.node.work:
            case TrainWork() as work:
                check_batch(work.training, execution)
            case PretrainWork() as work:
                check_batch(work.base.training, execution, "base.training")
            case EvaluateWork() as work if work.evaluation.backend == "vllm":
                check_vllm()


def check_checkpoints(steps: Iterable[Step], store: Store, execution: Execution) -> None:
    """Raise UserError where a cut run's last whole checkpoint does not fit how it would go on now."""
    for step in steps:
        if step.action == "run" and isinstance(step.node.work, TrainWork | PretrainWork):
            left = store.partial(step.node.identity)
            checkpoint, _ = last_whole(left / FOLDER)
            if checkpoint is not None and not (left / "model").is_dir():
                check_resume(checkpoint, execution)
