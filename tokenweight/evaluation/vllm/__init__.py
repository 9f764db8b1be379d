"""Backend `vllm`: an optional room. Whether it can run here is checked before anything is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from packaging.version import InvalidVersion, Version

from tokenweight.embedded import quiet
from tokenweight.errors import UserError
from tokenweight.recipes.schema import Execution

MINIMUM = "0.32"  # the oldest that was run with this project; older ones want a transformers that we do not support
_HOW = "run the same command, with the same --store, in an environment made for it (docs/vllm.md)"


def check(_: Execution | None = None) -> None:
    """UserError where vllm is not installed, cannot be imported, or is older than what was tried."""
    if find_spec("vllm") is None:
        raise UserError(f"backend vllm: vllm is not installed in this environment; {_HOW}")
    quiet("vllm")
    with importing():
        import vllm

        version = Version(vllm.__version__)
    if version < Version(MINIMUM):
        raise UserError(f"backend vllm: vllm {version} is too old, {MINIMUM} or later is needed; {_HOW}")


@contextmanager
def importing() -> Iterator[None]:
    """What goes wrong when vllm, or what it depends on, is imported, as a UserError."""
    try:
        yield
    except (ImportError, OSError, RuntimeError, AttributeError, InvalidVersion) as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"backend vllm: vllm cannot be imported here ({what}); {_HOW}") from error
