"""Run a plan in several processes of this machine, without Prefect: small models leave a GPU idle, several fill it.

    python -m tokenweight.tasks.crew table-3:1 planted:3 --scale mini --store store --workers 8 --seconds 540

What is named first is made first; `:K` asks for seeds 0 to K - 1, and `table-3/uniform/seed-1@planted,ruler` for one
recipe on some benchmarks. The stages, the store, its leases and records are those of `tokenweight reproduce`, which
afterwards finds everything made. The crew takes `--gpus` free GPUs for itself, as a run does (tokenweight.gpus); each
worker keeps to one of them, and its output is in STORE/crew. After `--seconds`, planning included, those at work are
stopped: the next run goes on from the store. On a machine that keeps nothing, `--records FILE` packs what is finished
every minute; see tokenweight.pipeline.archive.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.stages import Evaluate
from tokenweight.gpus import chosen_gpus
from tokenweight.pipeline import Store
from tokenweight.pipeline.archive import check_place, write_records
from tokenweight.pipeline.stage import Artifact
from tokenweight.planning.graph import Graph, Planner
from tokenweight.planning.plan import PlanEntry, check_before_running, check_inputs, schedule
from tokenweight.progress import no_progress
from tokenweight.recipes import SCALES, Inputs, load
from tokenweight.recipes.execution import execution_for
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.collect import plan_target
from tokenweight.training.parent_death import end_with_parent

Note = Callable[[str], None]
LONG = ("pretrain", "score", "train")  # stages that keep a GPU busy: few at a time
POLL_SECONDS = 5.0
RECORDS_EVERY_SECONDS = 60.0


@dataclass(frozen=True)
class Piece:
    """What one worker does at a time: one artifact, or the units of one checkpoint, benchmark and length."""

    nodes: tuple[Artifact, ...]
    needs: frozenset[Artifact]
    name: str

    @property
    def is_long(self) -> bool:
        """Whether it fills a good part of a GPU."""
        return self.nodes[0].stage.name in LONG


@dataclass
class Outcome:
    """What became of a plan."""

    made: int = 0
    failed: list[str] = field(default_factory=list)
    left: int = 0  # pieces that were not begun or were stopped


def pieces(plans: Iterable[Sequence[PlanEntry]]) -> list[Piece]:
    """What the plans need and the store does not hold, in the order of the plans; nothing twice."""
    found: list[Piece] = []
    planned = set[Artifact]()
    for plan in plans:
        missing = [step.artifact for step in plan if step.action != "reuse" and step.artifact not in planned]
        planned |= set(missing)
        groups: dict[str, list[Artifact]] = {}
        for node in missing:
            groups.setdefault(_group(node), []).append(node)
        for name, nodes in groups.items():
            needs = frozenset(parent for node in nodes for parent in node.parents if parent in planned)
            found.append(Piece(tuple(nodes), needs, name))
    return found


def _group(node: Artifact) -> str:
    work = node.stage
    if not isinstance(work, Evaluate):
        return node.identity.address
    checkpoint = node.inputs["checkpoint"]
    parts = (checkpoint.short_name, checkpoint.fingerprint[:8], work.unit.benchmark, work.context_tokens)
    length = work.unit.length_tokens if work.unit.benchmark == "ruler" else None
    return " ".join(str(part) for part in ("evaluate", *parts, length) if part is not None)


def run_crew(
    waiting: Sequence[Piece],
    store: Store,
    execution: Execution,
    *,
    workers: int,
    gpus: int,
    long_at_once: int,
    end: float,
    note: Note,
    tick: Callable[[], None] = lambda: None,
) -> Outcome:
    """Make all pieces by `workers` processes, at most `long_at_once` long ones together, until `end` (time.monotonic).

    Worker i sees GPU i mod `gpus` alone (all devices where `gpus` is 0). A piece that fails is named, and what needs it
    is left; the others go on. `tick` is called every few seconds.
    """
    outcome = Outcome()
    todo = list(waiting)
    unmade = {node for piece in todo for node in piece.nodes}
    crew = [_Worker(number, number % gpus if gpus else None, store, execution) for number in range(workers)]
    try:
        while True:
            for worker in crew:
                if worker.piece is None and (piece := _next(todo, unmade, crew, worker, long_at_once, gpus)):
                    todo.remove(piece)
                    worker.begin(piece)
            busy = {worker.connection: worker for worker in crew if worker.piece is not None}
            if not busy or time.monotonic() > end:
                break
            tick()
            for connection in wait(list(busy), timeout=min(POLL_SECONDS, max(0.1, end - time.monotonic()))):
                worker = busy[connection]  # type: ignore[index]
                piece, error = worker.finish()
                if not worker.process.is_alive():
                    worker.stop()
                    crew[worker.number] = _Worker(worker.number, worker.gpu, store, execution)
                if error:
                    outcome.failed.append(f"{piece.name}: {error}")
                else:
                    outcome.made += len(piece.nodes)
                    unmade -= set(piece.nodes)
                took = time.monotonic() - worker.began
                note(f"{piece.name}: {error or 'made'} ({took:.0f} s, worker {worker.number}, {len(todo)} pieces wait)")
        outcome.left = len(todo) + sum(worker.piece is not None for worker in crew)
    finally:
        for worker in crew:
            worker.stop()
    return outcome


def _next(
    todo: Iterable[Piece],
    unmade: set[Artifact],
    crew: Sequence[_Worker],
    worker: _Worker,
    long_at_once: int,
    gpus: int,
) -> Piece | None:
    """The first piece whose inputs are there; long ones are spread evenly over the GPUs."""
    long_ones = [other for other in crew if other.piece is not None and other.piece.is_long]
    here = sum(other.gpu == worker.gpu for other in long_ones)
    room = len(long_ones) < long_at_once and here < -(-long_at_once // max(gpus, 1))
    return next((piece for piece in todo if not piece.needs & unmade and (room or not piece.is_long)), None)


class _Worker:
    """One process, and the piece it is at."""

    def __init__(self, number: int, gpu: int | None, store: Store, execution: Execution) -> None:
        context = multiprocessing.get_context("spawn")
        self.number, self.gpu = number, gpu
        self.piece: Piece | None = None
        self.began = 0.0
        self.connection, theirs = context.Pipe()
        log = store.root / "crew" / f"worker-{number}.log"
        self.process = context.Process(target=_work, args=(theirs, gpu, store.root, execution, log, os.getpid()))
        self.process.start()
        theirs.close()

    def begin(self, piece: Piece) -> None:
        self.piece, self.began = piece, time.monotonic()
        self.connection.send(piece.nodes)

    def finish(self) -> tuple[Piece, str]:
        """The piece, and what went wrong with it ("" for nothing)."""
        piece, self.piece = self.piece, None
        assert piece is not None
        try:
            return piece, self.connection.recv()
        except EOFError:
            self.process.join()
            return piece, f"its process ended ({self.process.exitcode}) without a word; is there memory enough?"

    def stop(self) -> None:
        """End the process and what it has started (compilers, generators of text)."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()  # where it has not become a group of its own yet
        self.process.join()


def _work(
    connection: Connection, gpu: int | None, root: Path, execution: Execution, log: Path, parent_pid: int
) -> None:
    """Make what comes over the connection, until nobody sends any more; answers "" or the error."""
    end_with_parent(parent_pid, signal.SIGKILL)
    os.setpgid(0, 0)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:  # never a pipe of the main process, which would stay open with what is started here
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    if gpu is not None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[gpu] if visible else str(gpu)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    from tokenweight.pipeline.make import made
    from tokenweight.tasks.evaluate import evaluate_units

    store = Store(root)
    while True:
        try:
            nodes: tuple[Artifact, ...] = connection.recv()
        except EOFError:
            return
        try:
            if isinstance(nodes[0].stage, Evaluate):
                evaluate_units(list(nodes), store, execution, no_progress, _quiet)
            else:
                made(nodes[0], store, execution, no_progress, _quiet)
            answer = ""
        except (UserError, StageError) as error:
            answer = str(error)
        except Exception as error:
            traceback.print_exc()
            answer = f"{type(error).__name__}: {error}"
        _give_memory_back()
        connection.send(answer)


def _quiet(message: str) -> None:
    """The main process tells what happens."""


def _give_memory_back() -> None:
    """So that the other workers of the GPU have it."""
    import gc

    gc.collect()
    if "torch" in sys.modules:
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", metavar="TARGET[:SEEDS] or RECIPE@BENCHMARKS")
    parser.add_argument("--scale", choices=SCALES, default="mini")
    parser.add_argument("--store", type=Path, default=Path("store"))
    parser.add_argument("--corpus", help="directory of books")
    parser.add_argument("--mmlu", help="directory with dev/ and test/")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a recipe's field")
    parser.add_argument("--execution", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--without", default="", help="benchmarks that are left out, comma-separated")
    parser.add_argument("--workers", type=int, default=4, help="processes")
    parser.add_argument("--gpus", type=int, default=1, help="taken for the crew; 0: none")
    parser.add_argument("--long-at-once", type=int, default=2, help="pre-training, training and scoring at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop then")
    parser.add_argument("--records", type=Path, help="a .tar.xz of all records, written every minute and at the end")
    args = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        graphs = [_graph(text, args) for text in args.targets]
        store = Store(args.store)
        execution = execution_for(args.scale, args.execution)
        if not args.gpus:
            execution = execution.model_copy(update={"device": "cpu"})

        def note(message: str) -> None:
            print(f"{time.monotonic() - started:6.0f} s  {message}", file=sys.stderr, flush=True)

        plans = [schedule(graph, store) for graph in graphs]
        _check(args)
        check_before_running(graphs, store, execution, plans)
        todo = pieces(plans)
        note(f"{len(todo)} pieces to make")
        records = _Records(args.store, args.records) if args.records else None
        with _gpus(args.gpus if todo else 0, execution, note):
            outcome = run_crew(
                todo, store, execution, workers=args.workers, gpus=args.gpus, long_at_once=args.long_at_once,
                end=started + args.seconds, note=note, tick=records.now_and_then if records else lambda: None,
            )  # fmt: skip
        if records:
            records.at_the_end()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{outcome.made} artifacts made, {outcome.left} pieces left, {len(outcome.failed)} failed", file=sys.stderr)
    return 1 if outcome.failed or outcome.left else 0


def _check(args: argparse.Namespace) -> None:
    if args.workers < 1 or args.gpus < 0:
        raise UserError(
            f"--workers {args.workers}, --gpus {args.gpus}: give at least one worker, and no fewer GPUs than 0"
        )
    if args.records:
        check_place(args.store, args.records)


@contextmanager
def _gpus(count: int, execution: Execution, note: Note) -> Iterator[None]:
    """Hold `count` free GPUs, which alone are visible to the workers."""
    of_all = execution.model_copy(update={"processes": count})
    with chosen_gpus(of_all, {"train"} if count else (), note) as chosen:
        if len(chosen) < count and execution.device != "cpu":
            raise UserError(f"--gpus {count}: torch sees {len(chosen)} here; ask for no more (0: none, all on the CPU)")
        yield


class _Records:
    """Packs the store's records in the background."""

    def __init__(self, store: Path, file: Path) -> None:
        self.store, self.file = store, file
        self.last = time.monotonic()
        self.thread: threading.Thread | None = None

    def now_and_then(self) -> None:
        """Begin to pack, if the last time is long ago and over."""
        if time.monotonic() - self.last < RECORDS_EVERY_SECONDS or (self.thread and self.thread.is_alive()):
            return
        self.last = time.monotonic()
        self.thread = threading.Thread(target=write_records, args=(self.store, self.file), daemon=True)
        self.thread.start()

    def at_the_end(self) -> None:
        """Pack everything."""
        if self.thread:
            self.thread.join()
        write_records(self.store, self.file)


def _graph(text: str, args: argparse.Namespace) -> Graph:
    inputs, store = Inputs(corpus=args.corpus, mmlu=args.mmlu, settings=tuple(args.set)), Store(args.store)
    if "@" in text:
        name, _, benchmarks = text.partition("@")
        graph = Planner(store).graph([load(name, args.scale, inputs)], benchmarks.split(","))
    else:
        name, _, seeds = text.partition(":")
        if seeds and not (seeds.isdecimal() and int(seeds)):
            raise UserError(f"{text}: not TARGET:SEEDS; write for example table-3:3")
        graph = plan_target(name, args.scale, inputs, store, int(seeds) if seeds else None).graph
    check_inputs(graph)
    left_out = set(filter(None, args.without.split(",")))
    for recipe, nodes in graph.evaluations.items():
        graph.evaluations[recipe] = [node for node in nodes if _benchmark(node) not in left_out]
    graph.artifacts = [node for node in graph.artifacts if _benchmark(node) not in left_out]
    return graph


def _benchmark(node: Artifact) -> str | None:
    return node.stage.unit.benchmark if isinstance(node.stage, Evaluate) else None


if __name__ == "__main__":
    sys.exit(main())
