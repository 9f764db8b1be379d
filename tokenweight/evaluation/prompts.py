"""The files of a prepare artifact: one line per prompt, and a summary."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_prompts(rows: list[dict[str, Any]], summary: dict[str, Any], out_dir: Path) -> None:
    """Write ``prompts.jsonl`` and ``summary.json``, each whole or not at all."""
    out_dir.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    for name, text in (("prompts.jsonl", lines), ("summary.json", json.dumps(summary, indent=2) + "\n")):
        partial = out_dir / f"{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, out_dir / name)
