"""The command `tokenweight serve`."""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.errors import UserError


@command
def serve(
    *,
    runs: Annotated[int, Field(ge=1, description="Flow runs at the same time")] = 2,
    take_over: Annotated[
        bool, Field(description="Take over deployments that another directory or a work pool has")
    ] = False,
) -> None:
    """Register the deployments of prefect.yaml on the Prefect server in use and run them until Ctrl-C."""
    if find_spec("prefect") is None:
        raise UserError("prefect: is not installed; run `make install`, or pip install 'tokenweight[flows]'")
    os.environ["PREFECT_PLUGINS_ENABLED"] = "false"  # ours is for people's own `prefect` commands
    from tokenweight.flows.server import use_server
    from tokenweight.flows.serving import serve as serve_deployments

    url, source = use_server()
    print(f"server: {url.removesuffix('/api')} ({source})", flush=True)
    serve_deployments(Path.cwd(), url, runs, take_over, partial(print, flush=True))
