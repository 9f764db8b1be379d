"""What several commands do with their options."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from tokenweight import embedded
from tokenweight.errors import UserError


def results_directory(out: Path) -> Path:
    """Where results go; it need not exist yet."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is not a directory; choose another")
    return out.expanduser().resolve()


def run_flow(store_root: Path, flow: str, **parameters: Any) -> Any:
    """Run a flow, `module:name` below tokenweight.flows, in this process; its errors are left to the command line."""
    embedded.prepare(store_root)
    from tokenweight.tasks.forking import warm_up

    warm_up()  # the workers' imports, beside Prefect's and its server's start
    from tokenweight.flows.console import leave_errors_to_caller

    module, _, name = flow.partition(":")
    run = getattr(import_module(f"tokenweight.flows.{module}"), name)
    leave_errors_to_caller()
    embedded.end_at_signal()
    return run(**parameters)
