"""Training: frozen scoring, the weighted trainer, its checkpoints, and how processes are launched."""

import logging

logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)  # it speaks when imported
