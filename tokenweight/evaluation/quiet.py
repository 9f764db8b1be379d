"""Evaluation without the libraries' chatter."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from tokenweight.training.quiet import quiet_transformers


@contextlib.contextmanager
def quiet_harness() -> Iterator[None]:
    """lm-eval and transformers speak of errors only; what matters of their warnings is checked here."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with quiet_transformers():
            yield
    finally:
        logger.setLevel(level)
