"""A team's server: PostgreSQL as its database, a password, and two workers that share the runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import MODEL, Project, end, free_port, parameters, until

pytestmark = pytest.mark.slow
SECRET = "team:a-password"


def binaries() -> Path | None:
    """Where initdb and pg_ctl are; Debian keeps them off the PATH."""
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    if found := shutil.which("initdb"):
        places.append(Path(found).resolve().parent)
    return next((place for place in places if (place / "initdb").exists() and (place / "pg_ctl").exists()), None)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """Address of a PostgreSQL server on a port and in a directory of its own."""
    place = binaries()
    if place is None:
        pytest.skip("NOT TRIED: PostgreSQL is not installed (apt-get install postgresql)")
    directory = Path(tempfile.mkdtemp(prefix="tokenweight-postgres-"))  # pytest's own are closed to other users
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        if not shutil.which("runuser") or subprocess.run(["id", "postgres"], capture_output=True).returncode:
            pytest.skip("NOT TRIED: root without runuser or a user postgres cannot run PostgreSQL")
        as_user = ["runuser", "-u", "postgres", "--"]
        shutil.chown(directory, "postgres")
    data, port = directory / "data", free_port()

    def run(*command: str | Path) -> None:
        done = subprocess.run([*as_user, *map(str, command)], cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    run(place / "initdb", "-D", data, "-U", "tokenweight", "--auth=trust", "--no-sync")
    options = f"-c listen_addresses=127.0.0.1 -p {port} -k {directory}"
    run(place / "pg_ctl", "-D", data, "-l", directory / "log", "-w", "-o", options, "start")
    try:
        run(place / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "tokenweight", "prefect")
        yield f"postgresql+asyncpg://tokenweight@127.0.0.1:{port}/prefect"
    finally:
        run(place / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(directory)


def test_two_workers_share_the_runs_of_a_server_on_postgres(database: str, tmp_path: Path) -> None:
    secrets = {"PREFECT_SERVER_API_AUTH_STRING": SECRET, "PREFECT_API_AUTH_STRING": SECRET}
    project = Project(tmp_path, PREFECT_API_DATABASE_CONNECTION_URL=database, **secrets)
    project.environment["PREFECT_API_URL"] = project.url
    project.write(["evaluate", "train-and-evaluate"])
    server = project.start_server()
    workers = []
    try:
        assert project.prefect("work-pool", "create", "tokenweight", "--type", "process").returncode == 0
        deployed = project.prefect("deploy", "--all")
        assert deployed.returncode == 0, deployed.stdout + deployed.stderr
        assert not list(tmp_path.rglob("prefect.db"))
        workers = [
            project.start("worker", "start", "--pool", "tokenweight", "--limit", "1", "--name", name)
            for name in ("first", "second")
        ]
        place = {"scale": "smoke", "store": str(tmp_path / "store")}
        evaluating = parameters(
            models=[MODEL], benchmarks=["ruler", "mmlu"], limit=1, out=str(tmp_path / "results"), **place
        )
        training = parameters(
            experiment="table-3/uniform@mmlu",
            settings=["training.steps=2", "evaluation.mmlu.samples=1"], **place,
        )  # fmt: skip
        watched = [
            project.start("deployment", "run", "evaluate", "--watch", *evaluating),
            project.start("deployment", "run", "train-and-evaluate", "--watch", *training),
        ]
        for run in watched:
            said, _ = run.communicate(timeout=500)
            assert run.returncode == 0, said + project.logs()
        stranger = Project(tmp_path, PREFECT_API_URL=project.url)
        refused = stranger.prefect("deployment", "ls")
        assert refused.returncode != 0
        assert "401" in refused.stdout + refused.stderr
    finally:
        for worker in workers:
            worker.terminate()
        by_worker = [worker.communicate(timeout=600)[0] for worker in workers]
        end(server)
    assert [said.count("submitting flow run") for said in by_worker] == [1, 1]  # each ran one of the two
    assert until(lambda: not project.processes(), 30)
