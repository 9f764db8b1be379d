"""A plugin of Prefect (entry-point group `prefect.plugins`): what `prefect` commands know in the project's directory.

`prefect deployment run reproduce-table-3` works without the flow's name before it and prints which server it asks, or in
one line that none answers. Where nothing names a server, commands find the one that `prefect server start` has started
(Prefect alone would start another for each). The temporary server of a run ends with it. Prefect loads plugins where
`[tool.prefect.plugins]` of pyproject.toml or PREFECT_PLUGINS_ENABLED says so; without it, or where Prefect has changed,
everything is plain Prefect. This is the only file that touches what Prefect does not promise to keep.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from prefect.plugins import HookContext, SetupResult, register_hook

from tokenweight.embedded import OWNER, answers, nobody_answers, remove_home
from tokenweight.flows.server import chosen_server

READ = "read_deployment_by_name"


@register_hook
def setup_environment(*, ctx: HookContext) -> SetupResult | None:
    if owner := os.environ.get(OWNER):
        if "PREFECT__SERVER_EPHEMERAL" in os.environ:
            threading.Thread(target=_end_with, args=(int(owner),), daemon=True).start()
        return None
    try:
        allow_short_names()
    except Exception as error:
        ctx.logger_factory("prefect.plugins").debug("deployments need FLOW/DEPLOYMENT: %s", error)
    words = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    if Path(sys.argv[0]).name not in ("prefect", "-m") or words[:1] in ([], ["server"], ["config"], ["profile"]):
        return None
    url, source = chosen_server(ctx.api_url)
    if words[:2] == ["deployment", "run"]:
        if not answers(url):
            raise SystemExit(f"error: {nobody_answers(url, source)}")
        print(f"server: {url.removesuffix('/api')} ({source})", file=sys.stderr)
    env = {} if ctx.api_url or (words[:2] != ["deployment", "run"] and not answers(url)) else {"PREFECT_API_URL": url}
    if words[:2] == ["worker", "start"]:  # its processes: the one of a run's cancelling imports Prefect within asyncio
        env["PREFECT_PLUGINS_ENABLED"] = "false"
    return SetupResult(env=env) if env else None


def _end_with(owner: int) -> None:
    """A run that is killed (kill -9) can end nobody: its server sees that it has another parent."""
    while os.getppid() == owner:
        time.sleep(0.5)
    remove_home()
    os.kill(os.getpid(), signal.SIGKILL)


def allow_short_names() -> None:
    """Let Prefect's client read a deployment by its own name alone; safe to call twice."""
    from prefect.client.orchestration import PrefectClient

    read = getattr(PrefectClient, READ)
    if not hasattr(read, "__wrapped__"):
        setattr(PrefectClient, READ, _by_short_name(read))


def _by_short_name(read: Callable[..., Any]) -> Callable[..., Any]:
    from prefect.client.schemas.filters import DeploymentFilter

    @wraps(read)
    async def read_by_short_name(client: Any, name: str) -> Any:
        if "/" in name:
            return await read(client, name)
        named = DeploymentFilter.model_validate({"name": {"any_": [name]}})
        found = await client.read_deployments(deployment_filter=named)
        # Flows and deployments of a target have the same name; where there is none, Prefect says that it was not found.
        return found[0] if len(found) == 1 else await read(client, f"{name}/{name}")

    return read_by_short_name
