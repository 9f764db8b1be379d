"""RULER by task, for every weighting of Tables 3 and 4 (not in the paper, which prints the mean of the 13).

A mean of 13 tasks hides that some are at the ceiling and some at zero, and that one or two carry a difference.
"""

from __future__ import annotations

from tokenweight.pipeline.experiment import Column, Experiment, Lengths
from tokenweight.pipeline.measures import ColumnMean, TaskMean
from tokenweight.reports.targets import columns as shared
from tokenweight.reports.targets import llama_rows as rows

# Task, label, group; Appendix C of the paper, Table 2 of RULER.
TASKS = (
    ("niah_single_1", "1", "One needle"),
    ("niah_single_2", "2", "One needle"),
    ("niah_single_3", "3", "One needle"),
    ("niah_multikey_1", "1", "Several keys"),
    ("niah_multikey_2", "2", "Several keys"),
    ("niah_multikey_3", "3", "Several keys"),
    ("niah_multivalue", "values", "Several"),
    ("niah_multiquery", "queries", "Several"),
    ("vt", "VT", "Tracing"),
    ("cwe", "common", "Words"),
    ("fwe", "frequent", "Words"),
    ("qa_1", "1", "Questions"),
    ("qa_2", "2", "Questions"),
)


def columns(lengths: Lengths) -> tuple[Column, ...]:
    """RULER, and each task's mean over the lengths."""
    by_task = (column for task in TASKS for column in _of_task(*task, lengths.ruler))
    return (*shared.hidden(shared.ruler_lengths(lengths)), shared.ruler_combined(lengths, "combined"), *by_task)


def _of_task(task: str, label: str, group: str, lengths_tokens: tuple[int, ...]) -> tuple[Column, ...]:
    """A task at each length, which is only computed with, and the mean over the lengths."""
    at_lengths = tuple(
        Column(
            f"{task}-{length_tokens}",
            f"{label} at {length_tokens}",
            TaskMean("ruler", length_tokens=length_tokens, tasks=(task,)),
            None,
            group,
        )
        for length_tokens in lengths_tokens
    )
    mean = Column(task, label, ColumnMean(tuple(column.key for column in at_lengths)), None, group, decimals=1)
    return (*shared.hidden(at_lengths), mean)


RULER_TASKS = Experiment(
    name="ruler-tasks",
    title="RULER by task, mean over the lengths (higher is better)",
    paper_place="",
    rows=(*rows.WEIGHTINGS[:1], rows.LCDE, *rows.WEIGHTINGS[1:]),
    stub=("Weighting", "Subset"),
    baseline="uniform",
    divergences=(
        "One needle: 1 a number in repeated noise, 2 a number in prose, 3 a UUID in prose. Several keys: 1 four needles, 2 and 3 "
        "nothing but needles (3: UUIDs). Several values of one key, several queries at once. Tracing: variables. Words: the "
        "commonest of a list, the most frequent of made-up ones. Questions: 1 in SQuAD's form, 2 in HotpotQA's (the shipped ones "
        "of scales smoke and mini are of our own).",
    ),
)
