"""A deployment's run ends with the process that started it: nobody could cancel it any more."""

from __future__ import annotations

import os
import threading

from tokenweight.processes import end_with_parent


def end_with_the_server_of_runs() -> None:
    """Let SIGTERM end this flow run when the `tokenweight serve` or the worker that started it is gone.

    The kernel forgets the wish with the thread that makes it, so that only the main thread can make it.
    """
    if "PREFECT__FLOW_RUN_ID" in os.environ and threading.current_thread() is threading.main_thread():
        end_with_parent(os.getppid())
