"""A Prefect worker that runs each flow run as a job of Slurm (docs/slurm.md); Prefect finds it by its entry point."""

from tokenweight.flows.slurm.worker import SlurmWorker

__all__ = ["SlurmWorker"]
