"""Read what is asked of the hub as scale paper does, in a process of its own: `hub_reads.py NAME...`, answers as JSON.

The hub's clients read HF_ENDPOINT and HF_HOME when they are imported.
"""

import json
import sys
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenweight.assets import smoke_base_dir
from tokenweight.corpus.sources import documents
from tokenweight.corpus.stages import Chunk
from tokenweight.errors import UserError
from tokenweight.evaluation.benchmark import Unit
from tokenweight.evaluation.units import BENCHMARKS, unreachable
from tokenweight.pipeline.stage import Artifact, HubModel
from tokenweight.pipeline.store import locate
from tokenweight.progress import no_progress
from tokenweight.recipes.recipe import build, scaled
from tokenweight.recipes.schema import Chunking, Execution

CORPORA = {"pg19": "table-3/uniform", "slimpajama": "table-3/lcde", "fineweb": "table-11/uniform"}
MODELS = {"llama-3": "table-3/uniform", "phi-2": "table-7/uniform"}
TASKS = {"mmlu": "anatomy", "bbh": "navigate"}


def recipe(name: str) -> Any:
    return build(name, "paper", scaled(name, "paper"))


def read(name: str) -> Any:
    evaluation = recipe("table-3/uniform").evaluation
    if name in CORPORA:
        rows = islice(documents(recipe(CORPORA[name]).corpus, "train"), 3)
        return [[document.text, document.domain] for document in rows]
    if name == "enough":
        chunking = Chunking(long_tokens=128, mixture="lcde", sequences=2, read="enough")
        stage = Chunk(corpus=recipe("table-3/lcde").corpus, chunking=chunking)
        with TemporaryDirectory() as out:
            return stage.run({"tokenizer": smoke_base_dir()}, Path(out), Execution(), no_progress)
    if name in MODELS:
        base = recipe(MODELS[name]).base
        model = Artifact(HubModel(repo_id=base.repo_id, revision=base.revision), {}, {})
        return sorted(path.name for path in locate(model, None).iterdir())
    if name == "reachable":
        return unreachable({"longbench", "mmlu", "bbh"}, evaluation)
    if name == "longbench":
        return BENCHMARKS["longbench"].load_samples("samsum", evaluation.longbench)[0]
    benchmark = BENCHMARKS[name]
    (task,) = benchmark.harness_tasks([Unit(name, TASKS[name])], evaluation).values()
    return task.fewshot_context(next(iter(task.eval_docs)), 1)


def answer(name: str) -> dict[str, Any]:
    try:
        return {"read": read(name)}
    except UserError as error:
        return {"refused": str(error)}


print(json.dumps({name: answer(name) for name in sys.argv[1:]}))
