"""The command `tokenweight doctor`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.showing import note, print_json
from tokenweight.recipes.options import STORE, JsonOption, StoreOption


@command
def doctor(
    *,
    store: StoreOption = STORE,
    end: Annotated[bool, Field(description="End processes that killed runs have left running")] = False,
    as_json: JsonOption = False,
) -> None:
    """What is here and what is missing; `--end` ends what killed runs left."""
    from tokenweight import daemons
    from tokenweight.doctor import examine, left_over, print_findings

    root = store.expanduser().resolve()
    if end:
        processes = left_over(root)
        daemons.end(processes)
        note(f"processes ended: {len(processes)}")
    findings = examine(root)
    if as_json:
        print_json([finding.__dict__ for finding in findings])
    else:
        print_findings(findings)
