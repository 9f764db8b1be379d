"""Benchmarks as one protocol: what a checkpoint is asked, and how answers are scored."""

import logging

logging.getLogger("lm_eval").setLevel(logging.ERROR)  # what matters of its warnings is checked
