"""How many seeds a difference needs: from the seeds of a finished report.

    python benchmarks/power.py reports/results/mini-31m/planted.json --columns nll-long_recall,nll-short_context

For each column: the standard deviation over seeds of (row - baseline), the median and the greatest of the trained rows, and
the smallest true difference that a paired two-sided t-test over so many seeds finds at level .05 with power .8 (noncentral
t distribution), at the median. In the units of the columns.
"""

import json
from pathlib import Path
from typing import Annotated

import pandas as pd
from cyclopts import App, Parameter
from scipy import optimize, stats

SEEDS = (3, 4, 6, 9, 12)


def power(
    report: Path,
    *,
    columns: Annotated[str, Parameter(help="Comma-separated keys of columns.")],
    baseline: Annotated[str, Parameter(help="Key of the row that others are compared with.")] = "uniform",
) -> None:
    content = json.loads(report.read_text("utf-8"))
    keys = [column["key"] for column in content["columns"]]
    rows = {row["key"]: dict(zip(keys, row["cells"], strict=True)) for row in content["rows"]}
    lines = {}
    for column in columns.split(","):
        seeds = {key: row[column]["by_seed"] for key, row in rows.items() if len(row[column]["by_seed"] or ()) > 1}
        differences = pd.DataFrame(seeds).sub(seeds[baseline], axis=0)
        trained = [key for key in seeds if key != baseline and not key.startswith("no-train")]
        deviations = differences[trained].std()
        found = {f"{n} seeds": deviations.median() * detectable(n) for n in SEEDS}
        lines[column] = {"sd, median": deviations.median(), "sd, greatest": deviations.max(), **found}
    print(pd.DataFrame(lines).T.to_markdown(floatfmt=".3g"))


def detectable(seeds: int, level: float = 0.05, power: float = 0.8) -> float:
    """The smallest true difference that is found, in standard deviations."""
    df, critical = seeds - 1, stats.t.ppf(1 - level / 2, seeds - 1)
    return float(optimize.brentq(lambda d: stats.nct.sf(critical, df, d * seeds**0.5) - power, 1e-3, 50))


if __name__ == "__main__":
    app = App()
    app.default(power)
    app()
