"""Tables 4, 5, 7 and 11, and Figures 1, 2, 4 and 5 as tables: further models on the same benchmarks.

A row that repeats a model of Table 3 names Table 3's recipe, so that the model is trained once.
"""

from __future__ import annotations

from dataclasses import replace

from tokenweight.pipeline.experiment import Column, Emphasis, Experiment, Figure, Finding, Lengths, Row
from tokenweight.reports.targets import columns as shared
from tokenweight.reports.targets import llama_rows as rows


def _benchmarks(lengths: Lengths) -> tuple[Column, ...]:
    """MMLU, LongBench, RULER, and what RULER is computed from."""
    by_length = shared.hidden(shared.ruler_lengths(lengths))
    return (shared.mmlu(), shared.longbench(), shared.ruler_combined(lengths), *by_length)


def with_differences(lengths: Lengths) -> tuple[Column, ...]:
    """The benchmarks, and each less the row's reference."""
    benchmarks = _benchmarks(lengths)
    return (*benchmarks, *(shared.difference(column) for column in benchmarks if column.shown))


def only_differences(lengths: Lengths) -> tuple[Column, ...]:
    """Each benchmark less the row's reference."""
    benchmarks = _benchmarks(lengths)
    mmlu, longbench, ruler = (column for column in benchmarks if column.shown)
    return (*shared.hidden(benchmarks), *(shared.difference(column) for column in (mmlu, ruler, longbench)))


def with_average(lengths: Lengths) -> tuple[Column, ...]:
    """The benchmarks and their average."""
    return (*_benchmarks(lengths), shared.average_full("Avg.", ""))


def with_averages(lengths: Lengths) -> tuple[Column, ...]:
    """The benchmarks, the average of the long ones and that of all."""
    return (*_benchmarks(lengths), shared.average_long("LAvg.", ""), shared.average_full("Avg.", ""))


_THIRD = "Section 5.3"
TABLE_4_FINDINGS = (
    Finding("PPMI is bad on short context", _THIRD, "mmlu", "abs-pmi", "ppmi"),
    Finding("PPMI does not perform well on long context either", _THIRD, "ruler", "abs-pmi", "ppmi"),
    Finding("NPMI excels on short context", _THIRD, "mmlu", "npmi", "abs-pmi"),
    Finding("NPMI fails to learn long context", _THIRD, "ruler", "abs-pmi", "npmi"),
    Finding("Shifting tempers PPMI on short context", _THIRD, "mmlu", "sppmi", "ppmi"),
    Finding("Shifting tempers NPMI on long context", _THIRD, "ruler", "snpmi", "npmi"),
    Finding("The absolute value gives good overall performance: PPMI", _THIRD, "average-full", "abs-pmi", "ppmi"),
    Finding("The absolute value gives good overall performance: NPMI", _THIRD, "average-full", "abs-pmi", "npmi"),
)

TABLE_4 = Experiment(
    name="table-4",
    title="PMI variants as score functions, frozen sparse with κ = 0.4 (higher is better)",
    paper_place="Table 4",
    rows=(
        Row("ppmi", "PPMI", "table-4/ppmi"),
        Row("npmi", "NPMI", "table-4/npmi"),
        Row("sppmi", "sPPMI", "table-4/sppmi"),
        Row("snpmi", "sNPMI", "table-4/snpmi"),
        Row("abs-pmi", "abs(PMI)", "table-3/frozen-sparse"),
    ),
    emphasis=Emphasis(bold="largest", italic="smallest"),
    baseline="abs-pmi",
    findings=TABLE_4_FINDINGS,
)

TABLE_5 = Experiment(
    name="table-5",
    title="Weak-to-strong generalization: smaller frozen scorers (higher is better)",
    paper_place="Table 5",
    rows=(
        Row(
            "baseline",
            "-",
            "table-3/uniform",
            group="Baseline",
            rule_below="full",
            fills=("mmlu", "longbench", "ruler"),
        ),
        Row("sparse-1b", "3.2 1B", "table-5/sparse-1b", group="Sparse", reference="frozen-sparse"),
        Row("sparse-3b", "3.2 3B", "table-5/sparse-3b", group="Sparse", reference="frozen-sparse"),
        Row("sparse-8b", "3.1 8B", "table-5/sparse-8b", group="Sparse", reference="frozen-sparse", rule_below="full"),
        Row("dense-1b", "3.2 1B", "table-5/dense-1b", group="Dense", reference="frozen-dense"),
        Row("dense-3b", "3.2 3B", "table-5/dense-3b", group="Dense", reference="frozen-dense"),
        Row("dense-8b", "3.1 8B", "table-5/dense-8b", group="Dense", reference="frozen-dense"),
        rows.hidden(rows.FROZEN_SPARSE),
        rows.hidden(rows.FROZEN_DENSE),
    ),
    stub=("Weighting", "Scoring"),
    emphasis=Emphasis(underline_above_row="baseline"),
    baseline="baseline",
    divergences=("Differences are to the model scored by the frozen base itself (Frozen Sparse, Frozen Dense).",),
)

TABLE_7 = Experiment(
    name="table-7",
    title="Phi-2 2.7B extended to the long context (higher is better)",
    paper_place="Table 7",
    rows=(
        Row("uniform", "Uniform", "table-7/uniform", rule_below="full"),
        Row("unfrozen-sparse", "Sparse", "table-7/unfrozen-sparse"),
        Row("unfrozen-dense", "Dense", "table-7/unfrozen-dense", rule_below="full"),
        Row("frozen-sparse", "Sparse frozen", "table-7/frozen-sparse"),
        Row("frozen-dense", "Dense frozen", "table-7/frozen-dense", rule_below="full"),
        Row("no-train-2k", "{short} no-train", "table-7/no-train-2k", fills=("mmlu", "longbench")),
        Row("no-train-32k", "{long} no-train", "table-7/no-train-32k"),
    ),
    stub=("Weighting",),
    paper_lengths_tokens=(2048, 4096, 8192, 16384, 32768),
    emphasis=Emphasis(bold="largest", set_apart=(("no-train-2k", "mmlu"),)),
    baseline="uniform",
)

TABLE_11 = Experiment(
    name="table-11",
    title="Training on rare long sequences of FineWeb instead of PG-19 (higher is better)",
    paper_place="Table 11",
    rows=(
        Row("uniform", "Uniform", "table-11/uniform", rule_below="full", reference="pg19-uniform"),
        Row("unfrozen-sparse", "Unfrozen Sparse", "table-11/unfrozen-sparse", reference="pg19-unfrozen-sparse"),
        Row(
            "unfrozen-dense",
            "Unfrozen Dense",
            "table-11/unfrozen-dense",
            rule_below="full",
            reference="pg19-unfrozen-dense",
        ),
        Row("frozen-sparse", "Frozen Sparse", "table-11/frozen-sparse", reference="pg19-frozen-sparse"),
        Row("frozen-dense", "Frozen Dense", "table-11/frozen-dense", reference="pg19-frozen-dense"),
        *(replace(rows.hidden(row), key=f"pg19-{row.key}", label=f"PG-19 {row.key}") for row in rows.TRAINED),
    ),
    baseline="uniform",
    divergences=("Differences are to the same weighting trained on PG-19 (Table 3).",),
    compares_corpora=True,
)


def _figure(number: int, parameter: str, symbol: str, variant: str, recipes: dict[str, str]) -> Experiment:
    """An ablation curve as a table: one row per value of the parameter, the last one the uniform baseline."""
    name = f"figure-{number}"
    points = (
        Row(f"{parameter}-{value}", f"{symbol} = {value}", recipe or f"{name}/{parameter}-{value}", reference="uniform")
        for value, recipe in recipes.items()
    )
    baseline = Row("uniform", f"{symbol} = 1 (Uniform)", "table-3/uniform", reference="uniform")
    return Experiment(
        name=name,
        title=f"{variant}: difference to the uniform baseline by {symbol}",
        paper_place=f"Figure {number}",
        rows=(*points, baseline),
        baseline="uniform",
        stub=(symbol,),
        figure=Figure(kind="ablation"),
    )


# The value that Table 3 uses names Table 3's recipe.
FIGURE_1 = _figure(
    1, "lambda", "λ", "Dense unfrozen", {"0.05": "", "0.25": "", "0.50": "", "0.75": "table-3/unfrozen-dense"}
)
FIGURE_2 = _figure(
    2, "kappa", "κ", "Sparse unfrozen", {"0.2": "table-3/unfrozen-sparse", "0.4": "", "0.6": "", "0.8": ""}
)
FIGURE_4 = _figure(
    4, "lambda", "λ", "Dense frozen", {"0.00": "", "0.25": "", "0.50": "", "0.75": "table-3/frozen-dense"}
)
FIGURE_5 = _figure(5, "kappa", "κ", "Sparse frozen", {"0.2": "", "0.4": "table-3/frozen-sparse", "0.6": "", "0.8": ""})
