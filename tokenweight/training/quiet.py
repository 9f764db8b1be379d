"""transformers without progress bars and advice on the console: stages report through `progress`."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

logging.getLogger("lm_eval").setLevel(logging.ERROR)  # what matters of its warnings is checked
logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)  # it speaks when imported


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' bars and warnings, and restore its settings afterwards."""
    from transformers.utils import logging as transformers_logging

    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
