"""What comes with the package: small evaluation data, and the benchmarks' tables of tasks and prompts."""

from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


def smoke_eval_dir() -> Path:
    """Directory with ruler/, longbench/, mmlu/ and bbh/, each in its benchmark's official layout."""
    return Path(__file__).parents[1] / "assets" / "smoke-eval"


@cache
def table(name: str) -> Any:
    """The content of one of this room's YAML files, e.g. `ruler/tasks`."""
    text = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    return YAML(typ="safe", pure=True).load(text)
