"""Table 6, run times: rendered from measurements. It trains nothing; benchmarks/ measures on the GPUs that it is run on."""

from glob import glob
from pathlib import Path

from prefect import flow

from tokenweight.errors import UserError
from tokenweight.flat import flat
from tokenweight.recipes.options import RESULTS
from tokenweight.reports.runtimes import read_runtimes, runtime_report
from tokenweight.reports.writing import write_report
from tokenweight.tasks.task_runs import publish

MEASURED_HERE = ["llama3-8b-two", "llama3-8b", "phi-2"]


@flow(name="reproduce-table-6", flow_run_name="table-6", persist_result=False)
@flat
def reproduce_table_6(
    measurements: list[str] = [f"benchmarks/results/everything/{name}.json" for name in MEASURED_HERE],  # noqa: B006
    out: Path = RESULTS,
) -> dict[str, str]:
    """Render Table 6 of the paper (run time of each weighting) from measurements; measures nothing itself."""
    found = {pattern: sorted(glob(pattern)) for pattern in measurements}
    for pattern in (pattern for pattern, paths in found.items() if not paths):
        raise UserError(f"measurements: {pattern} names no file; run benchmarks/training_cost.py on your GPUs first")
    measured = read_runtimes(Path(path) for paths in found.values() for path in paths)
    files = write_report(runtime_report(measured), out.expanduser().resolve())
    publish("table-6", "table-6 from measurements", files)
    return {kind: str(path) for kind, path in files.items()}
