"""The shipped small evaluation data: official layouts, and the script that made them makes them again."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

from tokenweight.evaluation.bbh import BBH_TASKS
from tokenweight.evaluation.data import smoke_eval_dir
from tokenweight.evaluation.mmlu import MMLU_SUBJECTS

SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from smoke_eval import bbh, hub, longbench, mmlu, ruler
for maker in (ruler, longbench, mmlu, bbh, hub):
    maker.write(Path(sys.argv[2]) / maker.__name__.rpartition(".")[2])
"""


def test_the_script_makes_the_shipped_bytes(tmp_path: Path) -> None:
    scripts = Path(__file__).parents[2] / "scripts"
    subprocess.run([sys.executable, "-c", SCRIPT, str(scripts), str(tmp_path)], check=True)
    made = {file.relative_to(tmp_path): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    root = smoke_eval_dir()
    shipped = {file.relative_to(root): file.read_bytes() for file in root.rglob("*") if file.is_file()}
    del shipped[Path("README.md")]
    assert made.keys() == shipped.keys()
    changed = sorted(str(name) for name in made if made[name] != shipped[name])
    assert not changed, "run scripts/make_smoke_eval_data.py"
    assert sum(map(len, shipped.values())) < 1_500_000


def test_mmlu_and_bbh_are_complete() -> None:
    root = smoke_eval_dir()
    for split, count in (("dev", 5), ("test", 2)):
        files = sorted((root / "mmlu" / split).iterdir())
        assert [file.name for file in files] == sorted(f"{subject}_{split}.csv" for subject in MMLU_SUBJECTS)
        for file in files:
            rows = list(csv.DictReader(file.open(encoding="utf-8", newline="")))
            assert len(rows) == count
            for row in rows:
                choices = [row[f"choice{i}"] for i in range(4)]
                assert len(set(choices)) == 4
                assert 0 <= int(row["answer"]) < 4
    assert {file.stem for file in (root / "bbh").iterdir()} == set(BBH_TASKS)
    for file in (root / "bbh").iterdir():
        examples = json.loads(file.read_text(encoding="utf-8"))["examples"]
        assert len(examples) == 4
        for example in examples:
            assert set(example) == {"input", "target"}
            if example["target"].startswith("(") and "Options:" in example["input"]:
                assert f"\n{example['target']} " in example["input"]
