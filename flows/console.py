"""What a run prints: a user's mistake as one line, without Prefect's traceback."""

from __future__ import annotations

import logging

from tokenweight.errors import StageError, UserError


class _OneLine(logging.Filter):
    """Takes the traceback off records of errors that a person can mend."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, UserError | StageError):
            record.exc_info = None
            record.exc_text = None
            record.msg, record.args = "%s", (str(error),)
        return True


def one_line_errors() -> None:
    """Install the filter on Prefect's run loggers; safe to call twice."""
    for name in (
        "prefect.flow_runs",
        "prefect.task_runs",
        "prefect.engine",
        "prefect.flow_engine",
        "prefect.task_engine",
    ):
        logger = logging.getLogger(name)
        if not any(isinstance(present, _OneLine) for present in logger.filters):
            logger.addFilter(_OneLine())
