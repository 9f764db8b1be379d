"""One rank of a launched call: `LAUNCHER -m tokenweight.training.worker LAUNCH_FOLDER`."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from contextlib import suppress
from pathlib import Path

from tokenweight.errors import StageError, UserError
from tokenweight.processes import end_with_parent
from tokenweight.progress import no_progress
from tokenweight.training.launch import CALL, ERROR, PROGRESS_PREFIX
from tokenweight.training.stopping import VARIABLE, stop_softly_at_term


def main(folder: Path) -> int:
    """Make this rank's call; a clear error goes to error.json in the launch folder."""
    end_with_parent(os.getppid(), signal.SIGKILL)
    with (folder / CALL).open("rb") as file:
        stops_softly, stop_file = pickle.load(file)
        if stops_softly:
            stop_softly_at_term(folder)
        if stop_file is not None:
            os.environ[VARIABLE] = stop_file  # launchers do not carry the whole environment to other nodes
        try:
            call = pickle.load(file)
            call(progress=_report if os.environ["RANK"] == "0" else no_progress)
        except (UserError, StageError) as error:
            _report_error(folder, type(error).__name__, str(error))
            return 1
        except Exception as error:
            _report_error(folder, "StageError", f"rank {os.environ['RANK']}: {type(error).__name__}: {error}")
            raise
    from torch import distributed

    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()
    return 0


def _report_error(folder: Path, kind: str, message: str) -> None:
    """Leave the error where the launcher looks for it; the first rank to fail has the cause."""
    with suppress(FileExistsError), (folder / ERROR).open("x") as file:
        json.dump([kind, message], file)


def _report(done: float, total: int, what: str) -> None:
    print(f"{PROGRESS_PREFIX}{done} {total} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
