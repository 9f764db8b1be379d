"""The example runs as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

from tokenweight.corpus import novel

EXAMPLE = Path(__file__).parents[2] / "examples" / "weight_any_trainer.py"


def test_it_trains_on_a_text_file(tmp_path):
    book = next(iter(novel.books(5, "train", 1, 6000)))
    (tmp_path / "book.txt").write_text(book.text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE), "book.txt", "5"],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "'loss'" in ran.stdout
    assert "'train_loss'" in ran.stdout
