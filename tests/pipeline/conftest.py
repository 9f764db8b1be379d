"""Fixtures of the pipeline's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from tests_pipeline import started, workplace

__all__ = ["started", "workplace"]
