"""BBH's two extractions on every official answer in several forms, and what MMLU's average weighs; no model."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean
from typing import Any

from tokenweight.evaluation.bbh import BBH_TASKS, read_examples, strict_answer, tolerant_score
from tokenweight.evaluation.data import smoke_eval_dir
from tokenweight.evaluation.mmlu import MMLU_SUBJECTS, read_split

FORMS = {
    "with full stop": "So the answer is {}.",
    "without full stop": "So the answer is {}",
    "full stop and space": "So the answer is {}. ",
    "bold": "So the answer is **{}**.",
    "capital": "The Answer is {}.",
    "a sentence follows": "So the answer is {}. I am sure.",
}


def bbh(directory: Path | None) -> dict[str, Any]:
    """Share of right answers that each extraction keeps, by the form they are given in; all official targets."""
    root = directory or smoke_eval_dir() / "bbh"
    by_task = [[row["target"] for row in read_examples(root / f"{task}.json")] for task in BBH_TASKS]
    targets = [target for task in by_task for target in task]
    return {
        "targets": len(targets),
        "smallest_task": min(map(len, by_task)),
        "largest_task": max(map(len, by_task)),
        "with_capital_q": sum("Q" in target for target in targets),
        "forms": {
            name: {
                "strict": round(100 * fmean(strict_answer(form.format(t)) == t for t in targets), 2),
                "tolerant": round(100 * fmean(tolerant_score(form.format(t), t) for t in targets), 2),
            }
            for name, form in FORMS.items()
        },
    }


def mmlu(directory: Path | None) -> dict[str, Any]:
    """Questions of the subjects: their weight in the micro-average (in the macro-average all weigh the same)."""
    root = (directory or smoke_eval_dir() / "mmlu") / "test"
    sizes = {name: len(read_split(root / f"{name}_test.csv")) for name in MMLU_SUBJECTS}
    total = sum(sizes.values())
    largest, smallest = max(sizes, key=sizes.__getitem__), min(sizes, key=sizes.__getitem__)
    return {
        "questions": total,
        "largest": largest,
        "largest_weight_percent": round(100 * sizes[largest] / total, 2),
        "smallest": smallest,
        "smallest_weight_percent": round(100 * sizes[smallest] / total, 2),
        "macro_weight_percent": round(100 / len(sizes), 2),
    }


def perplexity(printed: float = 8.55) -> dict[str, Any]:
    """LCEG raises 2.71828 to the mean NLL: how far that is from exp, at a perplexity of Table 9."""
    return {"perplexity": printed, "with_2.71828": round(2.71828 ** math.log(printed), 5)}
