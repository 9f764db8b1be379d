"""The process of an isolated evaluation: `python -m tokenweight.evaluation.worker job.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.evaluation.isolation import USER_ERROR_EXIT_CODE
from tokenweight.evaluation.run import Job, evaluate
from tokenweight.evaluation.units import Unit
from tokenweight.recipes.schema import Evaluation, Execution
from tokenweight.training.parent_death import end_with_parent


def main(order_file: Path) -> int:
    """Evaluate what the file asks for; returns the exit code."""
    order = json.loads(order_file.read_text())
    end_with_parent(order["parent_pid"])
    jobs = [
        Job(Unit(**job["unit"]), tuple(map(Path, job["prepared_dirs"])), Path(job["out_dir"])) for job in order["jobs"]
    ]
    try:
        for _ in evaluate(
            Path(order["checkpoint_dir"]),
            jobs,
            Evaluation.model_validate(order["evaluation"]),
            order["context_tokens"],
            Execution.model_validate(order["execution"]),
        ):
            pass
    except UserError as error:
        print(error, file=sys.stderr)
        return USER_ERROR_EXIT_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
