"""What the benchmarks consist of, as far as an average depends on it."""

from __future__ import annotations

# Appendix C: three single needles, three multi-key, multi-value, multi-query, variable tracking,
# common words, frequent words, two question-answering sets.
RULER_TASK_COUNT = 13

# LongBench, English: 16 tasks in six categories, in the order of Table 8.
LONGBENCH_CATEGORIES: dict[str, tuple[str, ...]] = {
    "single-doc-qa": ("narrativeqa", "qasper", "multifieldqa_en"),
    "multi-doc-qa": ("hotpotqa", "2wikimqa", "musique"),
    "summarization": ("gov_report", "qmsum", "multi_news"),
    "few-shot": ("trec", "triviaqa", "samsum"),
    "synthetic": ("passage_count", "passage_retrieval_en"),
    "code": ("lcc", "repobench-p"),
}
LONGBENCH_TASKS: tuple[str, ...] = tuple(task for tasks in LONGBENCH_CATEGORIES.values() for task in tasks)
