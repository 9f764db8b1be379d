"""How much each difference between evaluation protocols changes, on stored predictions and generated samples.

    python benchmarks/evaluation_effects --longbench DIR [--longbench-test FILE] [--tokenizer DIR] [--haystack FILE] \
        [--squad FILE] [--hotpotqa FILE] [--bbh DIR] [--mmlu DIR] --out FILE.json

`--longbench`: a folder of runs, each a folder with <task>.jsonl of the 16 English tasks and result.json. What is not
given is taken from the small shipped files, and the record says so. Prints the tables of docs/evaluation.md.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Annotated

import cyclopts
import longbench as longbench_effects
import ruler as ruler_effects
import short_context
import tables
from cyclopts import Parameter
from cyclopts.validators import Number

from tokenweight.assets import smoke_base_dir

PACKAGES = ("lm_eval", "rouge", "tokenizers", "numpy", "wonderwords")


def main(
    longbench: Annotated[Path, Parameter(help="Folder of runs with predictions and result.json.")],
    out: Annotated[Path, Parameter(help="JSON to write.")],
    longbench_test: Annotated[Path | None, Parameter(help="Official test file of one task, with inputs.")] = None,
    tokenizer: Annotated[Path | None, Parameter(help="Tokenizer directory; the shipped one if absent.")] = None,
    haystack: Path | None = None,
    squad: Path | None = None,
    hotpotqa: Path | None = None,
    bbh: Path | None = None,
    mmlu: Path | None = None,
    samples: Annotated[int, Parameter(validator=Number(gte=1), help="RULER samples of each task.")] = 50,
) -> None:
    """Measure, print the tables, write JSON."""
    tokenizer_dir = tokenizer or smoke_base_dir()
    given = {"haystack": haystack, "squad": squad, "hotpotqa": hotpotqa, "bbh": bbh, "mmlu": mmlu}
    record = {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "sources": {name: path.name if path else "shipped" for name, path in given.items()},
        "longbench": longbench_effects.measure(longbench),
        "ruler": ruler_effects.measure(
            tokenizer_dir, {"haystack": haystack, "squad": squad, "hotpotqa": hotpotqa}, samples
        ),
        "bbh": short_context.bbh(bbh),
        "mmlu": short_context.mmlu(mmlu),
        "perplexity": short_context.perplexity(),
    }
    if longbench_test:
        record["longbench_unit"] = longbench_effects.measure_unit(longbench, longbench_test, tokenizer_dir)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print("\n\n".join(tables.blocks(record).values()))


if __name__ == "__main__":
    cyclopts.run(main)
