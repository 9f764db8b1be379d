"""The smoke DAG of the laboratory, small: two trainings that share base, chunks, scores and prompts; two units a model.

And processes of their own that make it, each forked from one that has torch loaded already, as the product's workers are.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from tokenweight.evaluation import units
from tokenweight.evaluation.data import smoke_eval_dir
from tokenweight.pipeline.manifest import ResolvedExperiment
from tokenweight.pipeline.stage import Artifact, Graph
from tokenweight.pipeline.store import Store, read_record
from tokenweight.planning.plan import schedule
from tokenweight.recipes import Inputs
from tokenweight.recipes.schema import Execution
from tokenweight.tasks.experiments import plan_texts, write_tables
from tokenweight.tasks.pieces import run_in_order
from tokenweight.tasks.worker import _Worker, start

OUTCOMES = ("accepted", "named", "refused", "flagged", "scored 0", "made again", "false numbers", "losses")
EXECUTION = Execution(device="cpu", eval_batch_sequences=4)
UNITS = ("longbench/trec", "perplexity/validation/1024")
HOLD_TIMES = ("summary.json", "metrics.jsonl", "tensorboard/")  # of one run, not of its numbers
PLANTED = {"HF_TOKEN": "hf_plantedTokenOfNobody", "WANDB_API_KEY": "0123456789abcdefplanted89abcdef01234567"}
BODIES = "bodies.log"  # in a store: the address of each artifact that somebody began to make
EXPERIMENT = """\
name: laboratory
benchmarks: [longbench, perplexity]
corpus: CORPUS
set:
  training.steps: 1
  training.sequences_per_step: 1
  training.warmup_steps: 0
  evaluation.longbench.samples: 2
  evaluation.longbench.max_new_tokens: 4
  evaluation.perplexity.lengths_tokens: [1024]
  evaluation.perplexity.documents: 2
rows:
  - {label: low, recipe: table-3/frozen-sparse, set: {weighting.kappa: 0.3}}
  - {label: high, recipe: table-3/frozen-sparse, set: {weighting.kappa: 0.6}}
"""


@dataclass(frozen=True)
class Laboratory:
    store: Store
    planned: ResolvedExperiment

    @property
    def graph(self) -> Graph:
        return self.planned.graph

    @cached_property
    def artifacts(self) -> list[Artifact]:
        """Those of the store, parents first."""
        return [one for one in self.graph.artifacts if self.store.path(one.identity).is_dir()]

    def path(self, artifact: Artifact) -> Path:
        return self.store.path(artifact.identity)

    def below(self, artifact: Artifact) -> set[Artifact]:
        """Everything that is made from an artifact, directly or through others."""
        found: set[Artifact] = set()
        for one in self.artifacts:
            if artifact in one.parents or found.intersection(one.parents):
                found.add(one)
        return found

    def runs(self) -> set[Artifact]:
        """What a plan would make now."""
        return {entry.artifact for entry in schedule(self.graph, self.store) if entry.action == "run"}

    def make(self, recipes: Iterable[str] | None = None) -> None:
        """All, or what some of the recipes need. By one thread: sums depend on how many there are."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        run_in_order(self.graph.part(recipes or self.graph.evaluations), self.store, EXECUTION)
        torch.set_num_threads(threads)

    def at(self, root: Path) -> Laboratory:
        """The same plan over another store."""
        return Laboratory(Store(root), self.planned)

    def contents(self) -> dict[str, dict[str, str]]:
        """Of every artifact that is there and sound the digests of its files, but for those that hold times."""
        sound = [one for one in self.artifacts if self.store.state(one.identity, digests=True).kind == "complete"]
        records = {one.address: (read_record(self.path(one)) or {})["outputs"] for one in sound}
        return {
            address: {name: file["sha256"] for name, file in outputs.items() if not name.startswith(HOLD_TIMES)}
            for address, outputs in records.items()
        }

    def begun(self) -> Counter[str]:
        """How often somebody began to make an artifact, by address, in processes of :func:`make`."""
        return Counter((self.store.root / BODIES).read_text("utf-8").split())

    def table(self, out: Path) -> dict[tuple[str, str], float]:
        """The numbers that the report shows, by row and column."""
        content = json.loads(write_tables(self.planned, self.store, out, figures=False)["json"].read_text("utf-8"))
        return {
            (row["key"], column["key"]): cell["value"]
            for row in content["rows"]
            for column, cell in zip(content["columns"], row["cells"], strict=True)
            if cell["value"] is not None
        }


def plan(store: Store, text: str) -> ResolvedExperiment:
    ((planned,), _) = plan_texts([text], "smoke", Inputs(), store)
    return planned


def of_books(directory: Path, books: Path) -> Laboratory:
    """Planned over `directory`/store, as if the two benchmarks had no other units than UNITS."""
    store = Store(directory / "store")
    with pytest.MonkeyPatch.context() as patch:  # only here: other tests plan in this process
        for name in ("longbench", "perplexity"):
            kind = type(units.BENCHMARKS[name])
            patch.setattr(kind, "units", lambda *given, every=kind.units: [u for u in every(*given) if u.id in UNITS])
        return Laboratory(store, plan(store, EXPERIMENT.replace("CORPUS", str(books))))


def made(directory: Path) -> Laboratory:
    """Everything made once."""
    (books := directory / "books").mkdir()
    text = (smoke_eval_dir() / "ruler" / "haystack.txt").read_text("utf-8")
    for number in range(12):
        (books / f"{number}.txt").write_text(text[number * 4_000 :][:30_000])
    laboratory = of_books(directory, books)
    laboratory.make()
    return laboratory


# --- In processes of their own ---


def started(laboratory: Laboratory, recipes: Iterable[str] | None = None, dies_after: int = 0) -> BaseProcess:
    process, _ = start(make, laboratory, recipes and list(recipes), dies_after)
    return process


def make(connection: Connection, laboratory: Laboratory, recipes: list[str] | None, dies_after: int) -> None:
    """Make what the store lacks, and note what is begun; killed, as by the kernel, at one of its writes into the store."""
    root, (building, left) = str(laboratory.store.root), (Store.building, [dies_after])

    @contextmanager
    def noted(self: Store, identity: Any, **given: Any) -> Iterator[Any]:
        with building(self, identity, **given) as work:
            if work is not None:
                with (self.root / BODIES).open("a") as file:
                    file.write(f"{identity.address}\n")
            yield work

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
        writes |= event == "open" and bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if writes and str(arguments[0]).startswith(root) and BODIES not in str(arguments[0]):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    laboratory.store.root.mkdir(parents=True, exist_ok=True)
    Store.building = noted  # type: ignore[method-assign]
    sys.addaudithook(count)
    laboratory.make(recipes)


def answer_under(
    connection: Connection, laboratory: Laboratory, artifacts: list[Artifact], kind: int, more: int
) -> None:
    """What a worker answers of a piece where the system gives it no more than it has and `more` of one resource."""
    torch.set_num_threads(1)
    pages, files = Path("/proc/self/statm").read_text().split()[0], len(os.listdir("/proc/self/fd"))
    has = {resource.RLIMIT_AS: int(pages) * os.sysconf("SC_PAGE_SIZE"), resource.RLIMIT_NOFILE: files}.get(kind, 0)
    for stream in (1, 2):  # a worker's log, whose disk has room
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    resource.setrlimit(kind, (has + more, resource.getrlimit(kind)[1]))
    told, error = _Worker(connection, laboratory.store, EXECUTION).answer(artifacts)
    connection.send((told, str(error)))
