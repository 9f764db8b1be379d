"""What a run prints of a user's mistake: one line, without Prefect's traceback."""

from __future__ import annotations

import logging

from tokenweight.errors import StageError, UserError

_LOGGERS = ("prefect.flow_runs", "prefect.task_runs", "prefect.engine", "prefect.flow_engine", "prefect.task_engine")


class _OneLine(logging.Filter):
    """Takes the traceback off errors that a person can mend, or drops them where the caller prints them."""

    left_to_caller = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, UserError | StageError):
            record.exc_info = None
            record.exc_text = None
            record.msg, record.args = "%s", (str(error),)
            return not self.left_to_caller
        return not (self.left_to_caller and "Failed('" in record.getMessage())


_FILTER = _OneLine()


def one_line_errors() -> None:
    """Install the filter on Prefect's run loggers; safe to call twice."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)


def leave_errors_to_caller() -> None:
    """For the command line, which prints the one line itself."""
    _FILTER.left_to_caller = True
