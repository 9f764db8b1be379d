"""Figure 3: the distribution of the PMI of all tokens of the validation documents, under the uniform model."""

from __future__ import annotations

from tokenweight.pipeline.experiment import Column, Experiment, Figure
from tokenweight.pipeline.measures import Pmi
from tokenweight.reports.targets import llama_rows as rows

_QUANTILES = (5, 25, 50, 75, 95)
_VARIANTS = {"ppmi": "PPMI", "npmi": "NPMI", "sppmi": "sPPMI", "snpmi": "sNPMI"}

PMI_COLUMNS: tuple[Column, ...] = (
    Column("pmi-mean", "mean", Pmi("mean"), None, "PMI", decimals=3),
    *(
        Column(f"pmi-q{percent}", f"{percent} %", Pmi("quantile", quantile=percent / 100), None, "PMI")
        for percent in _QUANTILES
    ),
    Column("pmi-positive", "> 0", Pmi("positive"), None, "Tokens with PMI", decimals=1),
    Column("pmi-near-zero", "within 0.05 of 0", Pmi("near_zero"), None, "Tokens with PMI", decimals=1),
    *(
        Column(f"pmi-zero-{key}", label, Pmi("zero", variant=key), None, "Score of zero", decimals=1)
        for key, label in _VARIANTS.items()
    ),
    *(
        Column(
            f"pmi-zero-{key}-all", label, Pmi("zero", "all", variant=key), None, "Score of zero, all tokens", decimals=1
        )
        for key, label in _VARIANTS.items()
    ),
)

PMI_NOTES = (
    "PMI = log p_long - log p_short in nats: p_long by the model on sequences as long as its context, p_short by the scorer "
    "on short windows of them, as in training. Percentages under PMI are quantiles, read from a histogram with bins of 1/256 "
    "nat; shares are in percent of the tokens, counted exactly.",
    "Values are of the tokens with far context, those behind a sequence's first window, but for the last four columns, which "
    "are of all tokens: in the first window the short context is all there is, and a model that is its own scorer gives a "
    "PMI of 0. n counts tokens; intervals resample documents.",
)

FIGURE_3 = Experiment(
    name="figure-3",
    title="Distribution of the PMI over the validation documents",
    paper_place="Figure 3",
    rows=(rows.flat(rows.UNIFORM, "Uniform"),),
    divergences=(
        *PMI_NOTES,
        "The paper shows a curve and prints no numbers of it. It does not say which model gives p_short: here it is the "
        "uniform model itself unless evaluation.pmi.scorer says frozen (the base, as for Table 4's scores).",
        "Section 5.3 says of the shifted variants (k = 2) that roughly 85 to 95 % of the tokens have a score of zero.",
    ),
    figure=Figure(kind="pmi"),
)
