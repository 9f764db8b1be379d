"""Write tokenweight/assets/smoke-eval: small evaluation data in the benchmarks' official layouts.

All texts are our own, made by seeded templates from the words of the synthetic novel: the same bytes on every run.
Usage: python scripts/make_smoke_eval_data.py
"""

from pathlib import Path

from smoke_eval import bbh, hub, longbench, mmlu, ruler

from tokenweight.evaluation.data import smoke_eval_dir

README = """# Small evaluation data

Written by `scripts/make_smoke_eval_data.py`; texts of our own, no item of the benchmarks themselves. Layouts are the
official ones: `ruler/` (haystack text, SQuAD and HotpotQA JSON), `longbench/` (JSONL), `mmlu/` (CSV), `bbh/` (JSON), `hub/` (data
sets of the hub, by their names).
Scores on them say whether the pipeline works and which of two small models retrieves better; they are no benchmark
results.
"""


def main() -> None:
    """Write everything and print the size."""
    out: Path = smoke_eval_dir()
    out.mkdir(parents=True, exist_ok=True)
    (out / "README.md").write_text(README, encoding="utf-8")
    for maker in (ruler, longbench, mmlu, bbh, hub):
        maker.write(out / maker.__name__.rpartition(".")[2])
    files = [file for file in out.rglob("*") if file.is_file()]
    print(f"{len(files)} files, {sum(file.stat().st_size for file in files):,} bytes in {out}")


if __name__ == "__main__":
    main()
