"""Table 6, run times: rendered from measurements. It trains nothing; benchmarks/ measures on the GPUs that it is run on."""

from __future__ import annotations

from typing import Annotated

from prefect import flow
from pydantic import Field

from tokenweight.flat import flat
from tokenweight.recipes.options import RESULTS, OutOption
from tokenweight.tasks.publish import publish
from tokenweight.tasks.runtimes import render_runtimes

MEASURED_HERE = ["zero3-fused", "h200-llama3-8b-fused", "h200-phi-2"]


@flow(name="reproduce-table-6", flow_run_name="table-6", persist_result=False)
@flat
def reproduce_table_6(
    measurements: Annotated[
        list[str],
        Field(description="Files of benchmarks/training_cost.py and zero3.py, or patterns; default: the repository's"),
    ] = [f"benchmarks/results/*{name}.json" for name in MEASURED_HERE],  # noqa: B006
    out: OutOption = RESULTS,
) -> dict[str, str]:
    """Render Table 6 of the paper (run time of each weighting) from measurements; measures nothing itself."""
    files = render_runtimes(measurements, out.expanduser().resolve())
    publish("table-6", "table-6 from measurements", files)
    return {kind: str(path) for kind, path in files.items()}
