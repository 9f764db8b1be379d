"""The command `tokenweight doctor`."""

from __future__ import annotations

import json

import typer

from tokenweight.commands.options import STORE, JsonOption, StoreOption


def doctor(store: StoreOption = STORE, as_json: JsonOption = False) -> None:
    """Say what is here and what is missing: Python, packages, GPUs, disk, data, credentials."""
    from tokenweight.doctor import examine, print_findings

    findings = examine(store.expanduser().resolve())
    if as_json:
        typer.echo(json.dumps([finding.__dict__ for finding in findings], indent=1))
    else:
        print_findings(findings)
