"""Where the small evaluation data that come with the package are (written by scripts/make_smoke_eval_data.py)."""

from pathlib import Path


def smoke_eval_dir() -> Path:
    """Directory with ruler/, longbench/, mmlu/ and bbh/, each in its benchmark's official layout."""
    return Path(__file__).parents[1] / "assets" / "smoke-eval"
