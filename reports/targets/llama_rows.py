"""The eight models of Table 3, which Tables 8, 9 and 10 show again."""

from __future__ import annotations

from dataclasses import replace

from tokenweight.pipeline.experiment import Row

NO_TRAIN_SHORT = Row(
    "no-train-8k",
    "{short}",
    "table-3/no-train-8k",
    group="No-train",
    rule_below="partial",
    fills=("mmlu", "longbench", "ruler-8k"),
)
NO_TRAIN_LONG = Row("no-train-32k", "{long}", "table-3/no-train-32k", group="No-train", rule_below="full")
LCDE = Row("lcde", "LCDE", "table-3/lcde", group="-", rule_below="partial")
UNIFORM = Row("uniform", "Uniform", "table-3/uniform", group="-", rule_below="full")
UNFROZEN_SPARSE = Row("unfrozen-sparse", "Sparse", "table-3/unfrozen-sparse", group="Unfrozen")
UNFROZEN_DENSE = Row("unfrozen-dense", "Dense", "table-3/unfrozen-dense", group="Unfrozen", rule_below="full")
FROZEN_SPARSE = Row("frozen-sparse", "Sparse", "table-3/frozen-sparse", group="Frozen")
FROZEN_DENSE = Row("frozen-dense", "Dense", "table-3/frozen-dense", group="Frozen")

TRAINED = (UNIFORM, UNFROZEN_SPARSE, UNFROZEN_DENSE, FROZEN_SPARSE, FROZEN_DENSE)
TABLE_3_ROWS = (NO_TRAIN_SHORT, NO_TRAIN_LONG, LCDE, *TRAINED)
WEIGHTINGS = (  # of Tables 3 and 4, for what compares all of them
    replace(NO_TRAIN_LONG, fills=None),
    UNIFORM,
    UNFROZEN_SPARSE,
    UNFROZEN_DENSE,
    replace(FROZEN_SPARSE, label="Sparse abs(PMI)"),
    replace(FROZEN_DENSE, rule_below="full"),
    Row("ppmi", "Sparse PPMI", "table-4/ppmi", group="Frozen"),
    Row("npmi", "Sparse NPMI", "table-4/npmi", group="Frozen"),
    Row("sppmi", "Sparse sPPMI", "table-4/sppmi", group="Frozen"),
    Row("snpmi", "Sparse sNPMI", "table-4/snpmi", group="Frozen"),
)


def flat(row: Row, label: str, rule_below: bool = False) -> Row:
    """The row in a table with a single label column, where every cell is filled."""
    return replace(row, group="", label=label, fills=None, rule_below="full" if rule_below else None)


def hidden(row: Row) -> Row:
    """The row as a reference that the table does not show."""
    return replace(row, shown=False, fills=None)
