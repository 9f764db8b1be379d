"""`tokenweight server`: a Prefect server with workers on this machine, ready for the deployments of prefect.yaml."""

from __future__ import annotations

import os
import socket
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tokenweight import daemons, embedded
from tokenweight.commands.command import command
from tokenweight.errors import StageError, UserError

HomeOption = Annotated[Path, Field(description="Directory of the server's database and logs.")]
GpusOption = Annotated[
    int | None, Field(ge=0, description="That runs may hold at once. Default of `up`: those that torch sees.")
]
START_SECONDS = 180
_LEASES = "prefect.server.concurrency.lease_storage.filesystem"  # in memory, a restart would never free what was held


@command
def up(
    *,
    home: HomeOption = daemons.HOME,
    host: Annotated[str, Field(description="Address to listen on; 0.0.0.0: for others too.")] = "127.0.0.1",
    port: Annotated[int, Field(ge=1, le=65535, description="Port to listen on")] = 4200,
    runs: Annotated[int, Field(ge=1, description="Flow runs of each work pool at once.")] = 1,
    gpus: GpusOption = None,
) -> None:
    """Start server and workers in the background, make pools, limits, automations, deployments; safe to run again."""
    _needs_prefect()
    project, home = Path.cwd(), home.expanduser().resolve()
    url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}/api"
    given = os.environ.get("PREFECT_API_URL", url)
    if given.rstrip("/") != url:
        raise UserError(
            f"PREFECT_API_URL: names {given}; unset it to start a server here, or run `tokenweight server setup` for that one"
        )
    environment = _prepare(home, url)
    from tokenweight.flows.bootstrap import bootstrap, wanted_in

    wanted_in(project)
    state = daemons.read_state(home)
    cut: set[str] = set()
    if state is None:
        cut = _end_what_a_server_left(home)
        state = _start_server(home, host, port, url, environment, project)
    elif state.api_url != url:
        raise UserError(f"--home {home}: its server runs at {state.api_url}; run `tokenweight server down` first")
    else:
        _wait_until_healthy(url, START_SECONDS, next(one for one in state.daemons if one.role == "server"))
        print("the server runs already; what is missing is added")
    if host != "127.0.0.1" and not os.environ.get("PREFECT_SERVER_API_AUTH_STRING"):
        print(
            "warning: whoever reaches this port can run code here; set PREFECT_SERVER_API_AUTH_STRING", file=sys.stderr
        )
    for pool in bootstrap(project, _visible_gpus() if gpus is None else gpus, print):
        role = f"worker of {pool}"
        if not state.running(role):
            name = daemons.worker_name(pool, socket.gethostname())
            worker = [
                *_PREFECT,
                "worker",
                "start",
                "--name",
                name,
                "--pool",
                pool,
                "--type",
                "process",
                "--limit",
                str(runs),
            ]
            state.daemons.append(daemons.start(role, worker, environment, home / f"worker-{pool}.log", project))
            state.write(home)
            print(f"{role}: started")
    _put_back(cut)
    print(f"server: {url.removesuffix('/api')} (database, logs: {home})")
    print("next: prefect deployment run reproduce-table-3 --watch")
    if home != daemons.HOME.resolve():
        print(f"before it: export PREFECT_API_URL={url}")


@command
def setup(*, gpus: GpusOption = None) -> None:
    """Make pools, limits, automations, deployments on the server of PREFECT_API_URL; starts nothing."""
    _needs_prefect()
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        raise UserError("PREFECT_API_URL: is not set; set it to the server's address, e.g. http://server:4200/api")
    embedded.quiet()
    from tokenweight.flows.bootstrap import bootstrap, wanted_in

    wanted_in(Path.cwd())
    _wait_until_healthy(url, 10)
    for pool in bootstrap(Path.cwd(), gpus, print):
        print(f"worker: prefect worker start --pool {pool}")


@command
def down(*, home: HomeOption = daemons.HOME) -> None:
    """End what `up` started: workers, their flow runs, the server. Its database stays; what was cut goes on after `up`."""
    place = home.expanduser().resolve()
    state = daemons.read_state(place)

    if state:
        _needs_prefect()
        _prepare(place, state.api_url)
    ended = daemons.end_all(place, _put_back if state else None)
    print(f"{ended} processes ended" if ended else f"nothing runs in {place}")


def _end_what_a_server_left(home: Path) -> set[str]:
    """Workers of a server that was killed would serve the next one badly (no cancellation): they go, with their runs.

    Returns the ids of the runs.
    """
    flow_runs = daemons.flow_runs_of(home)
    if ended := daemons.end_all(home):
        print(f"{ended} processes of a server that is gone: ended")
    return flow_runs


def _put_back(flow_runs: set[str]) -> None:
    """Let interrupted runs go on when a worker is there; finish cancellations that were cut."""
    from tokenweight.flows.interrupted import put_back

    try:
        put_back(flow_runs, print)
    except Exception as error:  # whatever it is, the command is to go on
        print(f"warning: the server could not be told of interrupted runs ({error})", file=sys.stderr)


_PREFECT = (sys.executable, "-m", "prefect")


def _needs_prefect() -> None:
    if find_spec("prefect") is None:
        raise UserError(
            "prefect: is not installed; run `make install`, or pip install -e '.[flows]' in the project's directory"
        )


def _prepare(home: Path, url: str) -> dict[str, str]:
    """Environment of this process and of what it starts."""
    embedded.quiet()
    home.mkdir(parents=True, exist_ok=True)
    os.environ["PREFECT_HOME"] = str(home)
    os.environ["PREFECT_API_URL"] = url
    os.environ["PREFECT_PLUGINS_ENABLED"] = "false"
    os.environ.setdefault("PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE", _LEASES)
    if secret := os.environ.get("PREFECT_SERVER_API_AUTH_STRING"):
        os.environ.setdefault("PREFECT_API_AUTH_STRING", secret)
    return dict(os.environ)


def _start_server(
    home: Path, host: str, port: int, url: str, environment: dict[str, str], project: Path
) -> daemons.State:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(f"--port {port}: cannot be used on {host} ({error.strerror}); choose another") from None
    command = [*_PREFECT, "server", "start", "--host", host, "--port", str(port)]
    log = home / "server.log"
    server = daemons.start("server", command, environment, log, project)
    state = daemons.State(url, [server])
    state.write(home)
    _wait_until_healthy(url, START_SECONDS, server, log)
    return state


def _wait_until_healthy(
    url: str, seconds: float, server: daemons.Daemon | None = None, log: Path | None = None
) -> None:
    """Return when the server answers. StageError: it does not, or the process `server` ended."""
    import httpx
    from prefect.client.orchestration import get_client

    deadline = time.monotonic() + seconds
    reason: Exception | None = None
    while time.monotonic() < deadline:
        with get_client(sync_client=True) as client:
            reason = client.api_healthcheck()
        if reason is None:
            return
        if isinstance(reason, httpx.HTTPStatusError) and reason.response.status_code in (401, 403):
            raise UserError(
                f"PREFECT_API_AUTH_STRING: the server at {url} does not accept it; set it to the server's own"
            )
        if server and not server.alive():
            break
        time.sleep(0.5)
    told = f"; the last of {log}: {' '.join(log.read_text().split()[-40:])}" if log else ""
    raise StageError(f"no Prefect server answers at {url} ({reason or 'no answer'}){told}")


def _visible_gpus() -> int | None:
    """GPUs that torch sees; None where it sees none, so that no limit is made."""
    import torch

    return torch.cuda.device_count() or None
