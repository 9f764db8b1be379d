"""One rank of a launched job: `LAUNCHER -m tokenweight.training.worker request.json out_dir`."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokenweight.errors import StageError, UserError
from tokenweight.processes import end_with_parent
from tokenweight.progress import no_progress
from tokenweight.recipes.schema import Execution, Scorer
from tokenweight.training.launch import PROGRESS_PREFIX
from tokenweight.training.stopping import VARIABLE, stop_softly_at_term


def main(request_path: Path, out_dir: Path) -> int:
    """Do this rank's part of the job; a clear error goes to error.json beside the request."""
    end_with_parent(os.getppid(), signal.SIGKILL)
    request = json.loads(request_path.read_text())
    execution = Execution.model_validate(request["execution"])
    if request["job"] == "train":
        stop_softly_at_term(request_path.parent)
    if request["stop_file"] is not None:
        os.environ[VARIABLE] = request["stop_file"]  # launchers do not carry the whole environment to other nodes
    try:
        {"train": _train, "score": _score}[request["job"]](request["arguments"], out_dir, execution)
    except (UserError, StageError) as error:
        _report_error(request_path, type(error).__name__, str(error))
        return 1
    except Exception as error:
        _report_error(request_path, "StageError", f"rank {os.environ['RANK']}: {type(error).__name__}: {error}")
        raise
    return 0


def _report_error(request_path: Path, kind: str, message: str) -> None:
    """Leave the error where the launcher looks for it; the first rank to fail has the cause."""
    with suppress(FileExistsError), request_path.with_name("error.json").open("x") as file:
        json.dump({"kind": kind, "message": message}, file)


def _train(arguments: dict[str, Any], out_dir: Path, execution: Execution) -> None:
    import torch

    from tokenweight.training.fit import fit
    from tokenweight.training.request import TrainRequest

    resume_from = Path(arguments["resume_from"]) if arguments["resume_from"] else None
    fit(TrainRequest.model_validate(arguments["request"]), out_dir, execution, _report, resume_from)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def _score(arguments: dict[str, Any], out_dir: Path, execution: Execution) -> None:
    from tokenweight.training.scoring import score

    score(
        Path(arguments.pop("model_dir")),
        Path(arguments.pop("chunk_dir")),
        out_dir,
        scorer=Scorer.model_validate(arguments.pop("scorer")),
        execution=execution,
        progress=_report if os.environ["RANK"] == "0" else no_progress,
        **arguments,
    )


def _report(done: float, total: int, what: str) -> None:
    print(f"{PROGRESS_PREFIX}{done} {total} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
