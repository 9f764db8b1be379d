"""What a column shows, as data: each measure says how per-sample scores become one number.

Scores are shares in 0..1 (perplexity: NLL in nats per token); all but UnitMean, Perplexity, Pmi and PhraseToken are times 100.
"""

from typing import Literal

from tokenweight.recipes.frozen import Frozen

Side = Literal["short", "long"]
PmiTokens = Literal["far", "all"]


class SampleMean(Frozen):
    """Micro-average: mean over all samples, as lm-eval weights its groups by size (MMLU 14,042 questions, BBH 6,511)."""

    benchmark: str
    length_tokens: int | None = None  # of samples of this length alone (NoLiMa)
    tolerant: bool = False  # BBH: the score after tolerant extraction
    chance: float = 0.0  # what guessing gives, in percent, where records do not say it
    kind: Literal["sample-mean"] = "sample-mean"


class TaskMean(Frozen):
    """Macro-average: mean over tasks of each task's mean over samples.

    RULER at one length (mean of 13 recalls), LongBench and its categories (the paper's Uniform row recomputes to 44.37 so, a
    mean of the six categories would give 45.0). `side` keeps the samples at most (short) or above (long) the LongBench
    `border`, counted in `unit`; a task without a sample there is left out of the mean, and named.
    """

    benchmark: str
    length_tokens: int | None = None
    tasks: tuple[str, ...] | None = None  # exactly these; None: all that the benchmark has
    task_count: int | None = None  # how many there must be, where names are not fixed here
    side: Side | None = None
    border: int = 8192
    unit: Literal["tokens", "words"] = "tokens"
    kind: Literal["task-mean"] = "task-mean"


class UnitMean(Frozen):
    """Plain mean over the samples of one unit, in the unit's own scale (nats, AUC)."""

    benchmark: str
    task: str
    kind: Literal["unit-mean"] = "unit-mean"


class Perplexity(Frozen):
    """exp of the mean NLL per token over the first `length_tokens` tokens of each document (Table 9), or as its task says."""

    benchmark: str
    length_tokens: int | None = None
    task: str = "validation"
    kind: Literal["perplexity"] = "perplexity"


class Pmi(Frozen):
    """A statistic of the PMI of all tokens (Figure 3), of those with far context or of all.

    mean and quantile in nats; shares in percent of the tokens: positive (PMI > 0), near_zero (|PMI| < 0.05) and zero
    (the score of `variant` is 0).
    """

    benchmark: str
    statistic: Literal["mean", "quantile", "positive", "near_zero", "zero"]
    tokens: PmiTokens = "far"
    quantile: float = 0.5
    variant: str = "abs_pmi"  # a PMI variant of Section 5.3
    kind: Literal["pmi"] = "pmi"


class PhraseToken(Frozen):
    """The loss of one token of the phrase, in nats, in the row's own unit (Table 1); `index` counts from 0.

    `tokens` are the texts of all. Which they are only a record knows: an experiment has one such column, without tokens,
    that a report makes into one for each.
    """

    benchmark: str
    index: int = 0
    tokens: tuple[str, ...] = ()
    kind: Literal["phrase-token"] = "phrase-token"


class ColumnMean(Frozen):
    """Plain mean of other columns of the same row (RULER combined; Average long and full)."""

    columns: tuple[str, ...]
    kind: Literal["column-mean"] = "column-mean"


class Difference(Frozen):
    """A column's value less that of the row's reference row (Tables 5 and 11, the figures)."""

    column: str
    kind: Literal["difference"] = "difference"


Measure = SampleMean | TaskMean | UnitMean | Perplexity | Pmi | PhraseToken | ColumnMean | Difference
