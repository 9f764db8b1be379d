"""What runs, in which order: Prefect flows, wiring only. A user's mistake is printed as one line, without a traceback."""

import logging

from tokenweight.embedded import quiet
from tokenweight.errors import StageError, UserError


class OneLine(logging.Filter):
    """Takes the traceback off errors that a person can mend, or drops them where the caller prints them."""

    left_to_caller = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if mended := isinstance(error, UserError | StageError):
            record.exc_info = record.exc_text = None
            record.msg, record.args = "%s", (str(error),)
        return not (self.left_to_caller and (mended or "Failed('" in record.getMessage()))


one_line = OneLine()
for _name in ("flow_runs", "task_runs", "engine", "flow_engine", "task_engine"):
    logging.getLogger(f"prefect.{_name}").addFilter(one_line)
quiet()
