"""A real Slurm on this machine: two nodes of one host, a GPU each (a character device), and a queue that preempts.

Everything lies in one directory, its munge key and sockets too; no file of the system is touched. Needs root, because
slurmd starts jobs as their users, and Debian's packages slurm-wlm, slurmctld, slurmd and munge.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol")
NODES = ("node0", "node1")

_CONFIGURATION = """
ClusterName=tokenweight-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge.socket,cred_expire=5
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=30
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=node0 NodeHostname={host} NodeAddr=127.0.0.1 Port={port0} CPUs=4 RealMemory=8000 Gres=gpu:1
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port1} CPUs=4 RealMemory=8000 Gres=gpu:1
PartitionName=gpu Nodes=node[0-1] Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=node[0-1] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str | None:
    """Why Slurm cannot be started here; None where it can."""
    if os.geteuid() != 0:
        return "not root"
    search = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=search) is None]
    return f"{', '.join(absent)} not installed (make slurm)" if absent else None


class LocalSlurm:
    """Daemons of one cluster; `environment` is what its clients need."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(root / "slurm.conf"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }

    def start(self) -> None:
        """Configure and start munge, the controller and both nodes; returns when both are idle."""
        host = socket.gethostname().partition(".")[0]
        ports = dict(zip(("controller_port", "port0", "port1"), _free_ports(3), strict=True))
        (self.root / "state").mkdir(parents=True)
        (self.root / "slurm.conf").write_text(_CONFIGURATION.format(root=self.root, host=host, **ports))
        (self.root / "gres.conf").write_text("".join(self._gpu(node) for node in NODES))
        key = self.root / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        files = {"key-file": key, "socket": "munge.socket", "pid-file": "munged.pid"}
        files |= {"log-file": "munged.log", "seed-file": "munged.seed"}
        self._daemon("munged", "--force", *(f"--{option}={self.root / file}" for option, file in files.items()))
        self._daemon("slurmctld")
        for node in NODES:
            self.start_node(node)

    def start_node(self, node: str) -> None:
        """Start a node's daemon and wait until jobs may run there."""
        self._daemon("slurmd", "-N", node)
        wait_for(lambda: self.node_state(node) in ("idle", "mixed", "allocated"), f"{node} to come up")

    def node_state(self, node: str) -> str:
        """As sinfo writes it, e.g. idle or down*."""
        return self.run("sinfo", "--noheader", "--nodes", node, "--partition", "gpu", "--format", "%T").strip()

    def lose(self, node: str) -> None:
        """What a power cut does to a node: its daemon and everything of its jobs are gone at once."""
        steps = [process for process in psutil.process_iter(["name", "cmdline"]) if _is_step_daemon(process)]
        jobs = [process for process in psutil.process_iter() if self._runs_on(process, node)]
        parents = {process.ppid() for process in jobs}
        lost = [psutil.Process(int((self.root / f"slurmd-{node}.pid").read_text()))]
        for process in [*lost, *(step for step in steps if step.pid in parents), *jobs]:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue

    def processes(self) -> list[psutil.Process]:
        """Everything that runs in jobs of this cluster."""
        return [process for node in NODES for process in psutil.process_iter() if self._runs_on(process, node)]

    def run(self, *command: str) -> str:
        """A command of Slurm's; its output."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def job(self, number: str) -> dict[str, str]:
        """The fields that `scontrol show job` prints."""
        line = self.run("scontrol", "show", "job", "--oneliner", number)
        return dict(word.split("=", 1) for word in line.split() if "=" in word)

    def queue(self) -> list[str]:
        """Names of the jobs that wait or run."""
        return self.run("squeue", "--noheader", "--format", "%j").split()

    def stop(self) -> None:
        """End all jobs and daemons."""
        subprocess.run(["scancel", "--user", "root"], env=self.environment, timeout=60, check=False)
        deadline = time.monotonic() + 20
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.2)
        for process in self.processes():
            process.kill()
        for file in (*self.root.glob("slurmd-*.pid"), self.root / "slurmctld.pid", self.root / "munged.pid"):
            if file.is_file() and psutil.pid_exists(pid := int(file.read_text())):
                os.kill(pid, signal.SIGTERM)
                psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=20)

    def _daemon(self, *command: str) -> None:
        with (self.root / "daemons.log").open("a") as log:
            subprocess.run(command, env=self.environment, stdout=log, stderr=log, timeout=60, check=True)

    def _gpu(self, node: str) -> str:
        device = self.root / f"gpu-of-{node}"
        os.mknod(device, 0o600 | 0o020000, os.makedev(1, 3))  # as /dev/null is
        return f"NodeName={node} Name=gpu File={device}\n"

    def _runs_on(self, process: psutil.Process, node: str) -> bool:
        try:
            environment = process.environ()
        except psutil.Error:
            return False
        ours = environment.get("SLURM_CONF") == self.environment["SLURM_CONF"]
        return ours and environment.get("SLURMD_NODENAME") == node


def _is_step_daemon(process: psutil.Process) -> bool:
    return "slurmstepd" in (process.info["name"] or "") or "slurmstepd" in " ".join(process.info["cmdline"] or ())


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait until a condition holds; raises TimeoutError with what was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.2)


def main() -> None:
    """`python tests/cluster/local_slurm.py DIRECTORY`: a Slurm to try things on, until Ctrl-C or TERM."""
    if reason := missing():
        sys.exit(reason)
    cluster = LocalSlurm(Path(sys.argv[1]).resolve())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        cluster.start()
        print(f"export SLURM_CONF={cluster.environment['SLURM_CONF']}", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        return
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
