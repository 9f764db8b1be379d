"""The command `tokenweight doctor`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tokenweight.commands.options import STORE, JsonOption, StoreOption


def doctor(
    store: StoreOption = STORE,
    end: Annotated[bool, typer.Option("--end", help="End processes that killed runs have left running.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what is here and what is missing: Python, packages, GPUs, disk, data, credentials, and what runs left over."""
    from tokenweight import daemons
    from tokenweight.doctor import examine, left_over, print_findings

    root = store.expanduser().resolve()
    if end:
        processes = left_over(root)
        daemons.end(processes)
        typer.echo(f"processes ended: {len(processes)}", err=True)
    findings = examine(root)
    if as_json:
        typer.echo(json.dumps([finding.__dict__ for finding in findings], indent=1))
    else:
        print_findings(findings)
