"""The options that commands share, and what they mean."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tokenweight.errors import UserError
from tokenweight.recipes.inputs import Inputs

if TYPE_CHECKING:
    from tokenweight.pipeline import Store

TargetArgument = Annotated[
    str, typer.Argument(help="A table or figure of the paper, e.g. table-3; paper: all of them.")
]
ScaleOption = Annotated[
    Literal["smoke", "mini", "paper"], typer.Option(help="smoke: CPU, minutes; mini: one GPU; paper: 8 GPUs.")
]
StoreOption = Annotated[Path, typer.Option(help="Directory of the artifacts; finished stages are reused.")]
OutOption = Annotated[Path, typer.Option(help="Directory of the results.")]
FormatsOption = Annotated[str | None, typer.Option(help="Of md,tex,csv,json, e.g. tex,csv. Default: all.")]
StyleOption = Annotated[
    Literal["ours", "paper", "both"],
    typer.Option(help="ours; paper: the paper's printed values alone; both, with their difference."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
INPUT_OPTIONS = {
    "corpus": (
        "--corpus",
        "Directory of .txt, .jsonl or .parquet in place of the recipe's corpus; to plan or report a list of its digests too.",
    ),
    "base": ("--base", 'Checkpoint directory; "pretrain": trained here; "random:CONFIG": random weights.'),
    "tokenizer": ("--tokenizer", "Directory with tokenizer.json, for --base pretrain or random."),
    "mmlu": ("--mmlu", 'Directory with dev/ and test/, or "hub"; to plan or report a list of its digests too.'),
    "bbh": ("--bbh", 'Directory of the official JSON files, or "hub".'),
    "longbench": ("--longbench", 'Directory of the official JSONL files, or "hub".'),
    "haystack": ("--haystack", "RULER's haystack: directory of .txt, or JSON with `text`."),
    "squad": ("--squad", "SQuAD dev-v2.0 JSON."),
    "hotpotqa": ("--hotpotqa", "HotpotQA dev-distractor JSON."),
}
EVALUATION_OPTIONS = {
    name: option for name, option in INPUT_OPTIONS.items() if name not in ("corpus", "base", "tokenizer")
} | {"corpus": ("--corpus", "Directory of .txt, .jsonl or .parquet for perplexity and pmi. Default: PG-19 of the hub.")}
FiguresOption = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Draw the figures beside the table, some seconds.")
]
SeedsOption = Annotated[int | None, typer.Option(min=1, help="Runs of each recipe; default: the target's own.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="key=value of a recipe field; repeat for more.")]
DeviceOption = Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Default: the scale's own.")]
LauncherOption = Annotated[
    Literal["inline", "torchrun", "deepspeed", "srun"] | None, typer.Option(help="Default: the scale's own.")
]
ProcessesOption = Annotated[int | None, typer.Option(min=1, help="Training processes of all nodes, one a GPU.")]
ExecutionOption = Annotated[
    list[str] | None, typer.Option("--execution", help="key=value of Execution, e.g. nodes=2; docs/launching.md.")
]

STORE = Path("store")
RESULTS = Path("results")


def with_inputs(
    command: Callable[..., None], offered: dict[str, tuple[str, str]] = INPUT_OPTIONS
) -> Callable[..., None]:
    """Give a command that takes `inputs` one option for each of a user's inputs, and --set."""

    def run(**given: Any) -> None:
        paths = {name: given.pop(name) for name in offered}
        command(inputs=Inputs(settings=tuple(given.pop("settings") or ()), **paths), **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(command, eval_str=True).parameters
    options = [
        inspect.Parameter(name, keyword, default=None, annotation=Annotated[str | None, typer.Option(flag, help=text)])
        for name, (flag, text) in offered.items()
    ]
    options.append(inspect.Parameter("settings", keyword, default=None, annotation=SetOption))
    kept = [parameter.replace(kind=keyword) for name, parameter in own.items() if name != "inputs"]
    run.__signature__ = inspect.Signature([*kept, *options])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def open_store(path: Path) -> Store:
    """The store at a path where one can be written."""
    from tokenweight.pipeline import Store

    root = path.expanduser().resolve()
    place = next(parent for parent in (root, *root.parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise UserError(f"--store {path}: {place} is not a directory that can be written; choose another")
    return Store(root)
