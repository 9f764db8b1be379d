"""The backends that run models: `hf` in the core, others in optional rooms that are looked up here and nowhere else."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tokenweight.errors import UserError
from tokenweight.recipes.schema import Backend, Execution, Precision

if TYPE_CHECKING:
    from tokenweight.evaluation.loaded_model import LoadedModel


def check_backend(backend: Backend) -> None:
    """UserError where the backend cannot run here, in one line, before anything is made."""
    if backend != "hf":
        _room(backend, "check").check()


def load(
    backend: Backend, checkpoint_dir: Path, context_tokens: int, execution: Execution, precision: Precision = "fp32"
) -> LoadedModel:
    """The checkpoint by the backend, weights and activations in that precision.

    Raises:
        UserError: the backend cannot run here, or cannot run this checkpoint.
    """
    if backend == "hf":
        from tokenweight.evaluation.hf_model import HFModel

        return HFModel(checkpoint_dir, context_tokens, execution, precision)
    model: LoadedModel = _room(backend, "model").load(checkpoint_dir, context_tokens, execution, precision)
    return model


def _room(backend: Backend, module: str) -> ModuleType:
    try:
        return import_module(f"tokenweight.evaluation.{backend}.{module}")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith(f"tokenweight.evaluation.{backend}"):
            raise
        raise UserError(f"backend {backend}: this installation leaves it out; use hf") from None
