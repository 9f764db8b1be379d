"""Scale mini's training on one GPU: elementwise parts compiled, and whole layers compiled, side by side.

    python benchmarks/small_model.py --out small_model.json

The project's own trainer on random tokens, in the shapes of the scale's recipes: pre-training the base, and a continued
training with uniform and with unfrozen sparse weights. Tokens a second, MFU and peak memory of the steps behind `--skip`.
"""

import json
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from cyclopts import App, Parameter

from tokenweight.assets import tokenizer_dir
from tokenweight.progress import no_progress
from tokenweight.recipes import load
from tokenweight.recipes.schema import Execution, PretrainBase
from tokenweight.training.bases import pretrain, write_random_base
from tokenweight.training.metrics import read_metrics
from tokenweight.training.models import load_tokenizer
from tokenweight.training.run import train
from tokenweight.training.stages import Pretrain, Train, architecture_values

HOW = {"elementwise parts compiled": {"fused": True}, "layers compiled": {"compiled": True}}
CONTINUED = ("table-3/uniform", "table-3/unfrozen-sparse")


def main(
    *,
    steps: Annotated[int, Parameter(help="Steps of each training.")] = 40,
    skip: Annotated[int, Parameter(help="First steps, which compile, that are not counted.")] = 15,
    micro_batch: Annotated[int, Parameter(help="Sequences of a forward pass.")] = 32,
    out: Annotated[Path | None, Parameter(help="JSON file to write.")] = None,
) -> None:
    lines: dict[str, Any] = {}
    for how, given in HOW.items():
        with tempfile.TemporaryDirectory() as directory:
            execution = Execution.model_validate(
                {"save_every_steps": steps, "micro_batch_sequences": micro_batch, **given}
            )
            for name, rows in runs(Path(directory), execution, steps).items():
                seconds = sum(row["seconds"] for row in rows[skip:])
                lines[f"{name}, {how}"] = {
                    "tokens/s": sum(row["tokens_per_second"] * row["seconds"] for row in rows[skip:]) / seconds,
                    "MFU": sum((row["mfu"] or np.nan) * row["seconds"] for row in rows[skip:]) / seconds,
                    "peak GiB": max(row["peak_memory_bytes"] for row in rows) / 2**30,
                }
        torch._dynamo.reset()
    print(pd.DataFrame(lines).T.to_markdown(floatfmt=(".0f", ".0f", ".3f", ".1f")))
    if out:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        versions = {name: metadata.version(name) for name in ("torch", "transformers")}
        out.write_text(json.dumps({"device": device, **versions, "steps": steps, "rows": lines}, indent=2) + "\n")


def runs(directory: Path, execution: Execution, steps: int) -> dict[str, list[dict[str, Any]]]:
    """The metrics of each step, by training."""
    base = load(CONTINUED[0], "mini").base
    assert isinstance(base, PretrainBase)
    tokenizer, reads = tokenizer_dir(base.tokenizer), base.training.sequences_per_step
    vocabulary = len(load_tokenizer(tokenizer))
    shape = Pretrain(
        architecture=base.architecture,
        context_tokens=base.context_tokens,
        training=base.training.model_copy(update={"steps": steps}),
        seed=base.seed,
    )
    inputs = {"tokenizer": tokenizer, "chunks": chunks(directory, reads * steps, base.context_tokens, vocabulary)}
    pretrain(shape, inputs, directory / "base", execution, no_progress)
    found = {"pre-training": read_metrics(directory / "base/metrics.jsonl")}
    for name in CONTINUED:
        recipe = load(name, "mini")
        assert recipe.training
        training = recipe.training.model_copy(update={"steps": steps})
        stage = Train(training=training, weighting=recipe.weighting, scorer=recipe.scorer)
        longer = shape.model_copy(update={"context_tokens": recipe.context_tokens})
        model, out = directory / "extended", directory / name
        write_random_base(architecture_values(longer, vocabulary), 0, tokenizer, model, with_weights=True)
        own = {
            **inputs,
            "model": model,
            "chunks": chunks(directory, stage.sequences, recipe.context_tokens, vocabulary),
        }
        train(stage, own, out, execution, no_progress)
        found[name] = read_metrics(out / "metrics.jsonl")
    return found


def chunks(directory: Path, sequences: int, tokens: int, vocabulary: int) -> Path:
    """Random tokens in the form of the chunk stage."""
    place = directory / f"chunks-{tokens}"
    place.mkdir(exist_ok=True)
    ids = np.random.default_rng(0).integers(5, vocabulary, (sequences, tokens), dtype=np.uint32)
    np.save(place / "tokens.npy", ids)
    return place


if __name__ == "__main__":
    app = App()
    app.default(main)
    app()
