"""One of the processes of :mod:`.workers`: `python -m tokenweight.evaluation.worker order.json`.

It loads the model once, reads jobs from its input, a JSON list a line, and answers with lines of its own: a unit that is
complete, how far the present units are, that it is ready for the next line, or an error for people. It ends where its
input does.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.benchmark import Unit, UnitRun
from tokenweight.evaluation.run import evaluate
from tokenweight.recipes.schema import Evaluation, Execution
from tokenweight.training.parent_death import end_with_parent


def main(order_file: Path) -> int:
    """Evaluate what comes; returns the exit code."""
    order = json.loads(order_file.read_text())
    end_with_parent(order["parent_pid"])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints does not belong among the answers

    def say(**message: Any) -> None:
        print(json.dumps(message), file=answers, flush=True)

    from tokenweight.evaluation.backends import load

    evaluation = Evaluation.part(order["evaluation"])
    execution = Execution.model_validate(order["execution"])
    try:
        harness = load(
            evaluation.backend, Path(order["checkpoint_dir"]), order["context_tokens"], execution, evaluation.precision
        )
        for line in sys.stdin:
            jobs = [_job(job) for job in json.loads(line)]
            for unit in evaluate(
                harness, jobs, evaluation, lambda done, total, what: say(done=done, total=total, what=what)
            ):
                say(unit=asdict(unit))
            say(ready=True)
    except (UserError, StageError) as error:
        say(error=str(error), of_user=isinstance(error, UserError))
        return 1
    return 0


def _job(job: dict[str, Any]) -> UnitRun:
    return UnitRun(Unit(**job["unit"]), tuple(map(Path, job["prepared_dirs"])), Path(job["out_dir"]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
