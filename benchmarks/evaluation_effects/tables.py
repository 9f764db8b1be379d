"""The tables and figures of docs/evaluation.md from the record, as Markdown."""

from __future__ import annotations

from statistics import fmean
from typing import Any

Record = dict[str, Any]


def blocks(record: Record) -> dict[str, str]:
    """Whole tables, by name."""
    return {
        "longbench_rules": _longbench_rules(record["longbench"]),
    }


def figures(record: Record) -> dict[str, str]:
    """Figures of the document's cells and sentences, by name."""
    runs, ruler, unit = record["longbench"], record["ruler"], record["longbench_unit"]
    qa, mmlu = ruler["qa_references"]["qa_1"], record["mmlu"]
    gaps = [
        abs(_rule(run, "lm_eval", task) - _rule(run, "thudm", task)) for run in runs.values() for task in _tasks(run)
    ]
    prefixes = [one["most"] for one in ruler["answer_prefix_tokens"].values()]
    overflow = ruler["overflow_of_official_2024"]
    skipped = ruler["qa_samples"]
    code = [one for run in runs.values() for one in run["code"].values()]
    ratios = [one["levenshtein"] - one["difflib"] for one in code]
    means = [{rule: one["mean"] for rule, one in run["first_line"].items()} for run in runs.values()]
    unruled = [one["thudm"] - one["none"] for one in means]
    one_reference = [run["references"]["mean_best"] - run["references"]["mean_first"] for run in runs.values()]
    strict, tolerant = ([one[key] for one in record["bbh"]["forms"].values()] for key in ("strict", "tolerant"))
    averages = [run["averages"] for run in runs.values()]
    return {
        "without_first_line": f"{min(unruled):.2f} to {max(unruled):.2f} points",
        "lceg_to_thudm": _signed([one["lceg"] - one["thudm"] for one in means]),
        "first_reference": f"{min(one_reference):.2f} to {max(one_reference):.2f} less",
        "with_chinese": _signed([one["with_chinese_21"] - one["tasks_16"] for one in averages]),
        "by_category": _signed([one["categories_6"] - one["tasks_16"] for one in averages]),
        "by_sample": _signed([one["samples"] - one["tasks_16"] for one in averages]),
        "lm_eval_to_thudm": f"at most {max(gaps):.2f} on a task",
        "levenshtein": f"{min(ratios):.2f} to {max(ratios):.2f} more on the two code tasks",
        "blank_lines": f"{sum(one['changed_by_blank_lines'] for one in code)} of "
        f"{sum(one['predictions'] for one in code):,} predictions change",
        "unit_tokens": f"{unit['tokens_per_word']:.2f} tokens a word",
        "unit_sides": f"{unit['samples'] - unit['short_by_words']} samples by words, "
        f"{unit['samples'] - unit['short_by_tokens']} by tokens",
        "unit_long": ", ".join(
            f"{one['long_by_words']:.2f} and {one['long_by_tokens']:.2f}" for one in unit["scores"].values()
        ),
        "unit_cut": f"{unit['cut_at_4096_tokens']} of {unit['samples']} prompts",
        "ruler_qa": f"{qa['string_match_all']:.2f} instead of {qa['string_match_part']:.2f}",
        "ruler_qa_references": f"{qa['references_mean']:.2f} references a question",
        "ruler_prefix": f"{min(prefixes)} to {max(prefixes)} tokens too long",
        "ruler_fwe": f"{overflow['fwe']['too_long']} of {overflow['fwe']['samples']} `fwe` samples, by up to "
        f"{overflow['fwe']['most_tokens_over']} tokens",
        "ruler_skips": ", ".join(
            f"{one['lm_eval']} of {one['questions']} at {name.rpartition('_')[2]}"
            for name, one in skipped.items()
            if name.startswith("qa_2")
        ),
        "cwe_demonstration": ", ".join(
            f"{one['tokens_mean']} tokens ({100 * one['share_of_length']:.1f} %) at {length}"
            for length, one in ruler["cwe_demonstration"].items()
        ),
        "bbh_strict": f"get {max(strict[1:]):.2f} % by the strict",
        "bbh_full_stop": f"both patterns accept {min(strict[0], tolerant[0]):.2f} %",
        "bbh_tolerant": f"accepts {min(tolerant[:-1]):.2f} % of the first four and {tolerant[-1]:.2f} % of the last",
        "bbh_q": f"{record['bbh']['with_capital_q']} of {record['bbh']['targets']:,} right answers",
        "mmlu_largest": f"`{mmlu['largest']}` {mmlu['largest_weight_percent']:.2f} %",
        "mmlu_smallest": f"`{mmlu['smallest']}` {mmlu['smallest_weight_percent']:.2f} %",
        "mmlu_macro": f"{mmlu['macro_weight_percent']:.2f} % each",
        "perplexity": f"{record['perplexity']['with_2.71828']:.5f} instead of {record['perplexity']['perplexity']}",
    }


def _signed(values: list[float]) -> str:
    return ", ".join(f"{value:+.2f}" for value in values)


def _table(header: list[str], rows: list[list[str]]) -> str:
    rule = "| --- |" + " ---: |" * (len(header) - 1)
    return "\n".join(["| " + " | ".join(header) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)])


def _tasks(run: Record) -> dict[str, float]:
    tasks: dict[str, float] = run["first_line"]["thudm"]["tasks"]
    return tasks


def _rule(run: Record, rule: str, task: str) -> float:
    value: float = run["first_line"][rule]["tasks"][task]
    return value


def _longbench_rules(runs: Record) -> str:
    def each(name: str, value: Any) -> list[str]:
        return [name, *(value(run) for run in runs.values())]

    def first_line(rule: str) -> Any:
        return lambda run: f"{run['first_line'][rule]['mean']:.2f}"

    def references(task: str) -> Any:
        return lambda run: f"{run['references']['tasks'][task]['first']:.2f} for {_rule(run, 'thudm', task):.2f}"

    def plain_words(run: Record) -> str:
        values = run["normalisation"].values()
        return f"{fmean(v['plain_words'] for v in values):.2f} for {fmean(v['normalised'] for v in values):.2f}"

    def long(border: str) -> Any:
        return lambda run: "{mean:.2f} ({samples:,})".format(**run["split"][border]["long"])

    def once(run: Record) -> str:
        found = [f"{v['score_of_distinct']:.2f} for {v['score']:.2f}" for v in run["repeated"].values()]
        return found[0] if found else "no line twice"

    rows = [
        each("mean of 16", first_line("thudm")),
        each("LCEG's first line", first_line("lceg")),
        each("no first-line rule", first_line("none")),
        each("first reference only: triviaqa", references("triviaqa")),
        each("words not normalised: 7 QA tasks", plain_words),
        each("> 8,192 words (samples)", long("8192_words")),
        each("≥ 8,000 words (samples)", long("under_8000_words")),
        each("repeated lines counted once: narrativeqa", once),
    ]
    return _table(["rule", *runs], rows)
