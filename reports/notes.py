"""What stands below a table: scale, divergences, gaps, refusals, flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenweight.pipeline.manifest import Manifest
from tokenweight.reports.estimates import Reason
from tokenweight.reports.model import Note
from tokenweight.reports.units import UnitResult

FEW_SAMPLES = 20  # of a task; with fewer its bootstrap interval holds the mean less often than it says
_NAMED = 3  # units that a flag's note spells out

# What the flags of an evaluation mean; the evaluation names them, and may have others.
FLAG_MEANINGS = {
    "all_empty": "no output holds a word",
    "all_equal": "all samples have the same score",
    "all_zero": "all samples score 0",
    "double_bos": "prompts begin with two BOS tokens or more",
    "implausibly_perfect": "the mean is higher than models reach",
    "left_truncated": "questions lost their beginning",
    "missing_bos": "prompts begin without the tokenizer's BOS",
    "mostly_truncated": "more than half of the prompts were cut",
    "one_answer_to_everything": "all answers are the same",
    "prompt_echoed": "outputs repeat their prompt",
}


def several_seeds(seeds: int) -> str:
    """How values of several seeds are to be read."""
    return (
        f"Values are means over {seeds} runs with seeds 0 to {seeds - 1} (other training sequences in another order, "
        "other random ties); ±: their standard deviation."
    )


class Notes:
    """Collects notes: those about the whole table first, then numbered ones in the order cells ask for them."""

    def __init__(self, general: Iterable[str]) -> None:
        self._general: dict[str, None] = dict.fromkeys(general)
        self._numbered: dict[str, dict[str, None]] = {}  # text -> rows that it is said of
        self._withheld: dict[str, list[str]] = {}

    def mark(self, reason: Reason) -> int:
        """The number of a note, which is new where the text is; rows with equal reasons share a note."""
        self._numbered.setdefault(reason.text, {})[reason.row] = None
        return list(self._numbered).index(reason.text) + 1

    def extend(self, texts: Iterable[str]) -> None:
        """Add notes about the whole table; a text that is there already is not repeated."""
        self._general.update(dict.fromkeys(texts))

    def withhold(self, column: str, rows: str) -> None:
        """A column gets no emphasis because rows have no value; columns with equal reasons share a note."""
        self._withheld.setdefault(rows, []).append(column)

    def all(self) -> tuple[Note, ...]:
        """All notes in the order of printing."""
        withheld = (
            f"Not judged for bold, italic or underline: {', '.join(columns)}, for want of a complete value in {rows}."
            for rows, columns in self._withheld.items()
        )
        whole = (Note(mark=None, text=text) for text in (*self._general, *withheld))
        numbered = (
            Note(mark=mark, text=": ".join(filter(None, (", ".join(filter(None, rows)), text))))
            for mark, (text, rows) in enumerate(self._numbered.items(), start=1)
        )
        return (*whole, *numbered)


def general_notes(manifest: Manifest) -> tuple[str, ...]:
    """What the table is, divergences from the paper, and which rows failed, and why."""
    failed: dict[str, list[str]] = {}
    for entry in manifest.rows:
        if entry.failed:
            failed.setdefault(entry.failed, []).append(manifest.label((entry.row, entry.seed)))
    told = (f"Failed in this run: {' and '.join(dict.fromkeys(rows))}: {why}." for why, rows in failed.items())
    return (manifest.about, *manifest.experiment.divergences, *manifest.divergences, *told)


def repair(manifest: Manifest) -> str:
    """Which command fills what is missing and makes again what is stale or cannot be read."""
    return (
        f"What is missing, partial, stale or unreadable is made by running {manifest.command} with this run's other options; what "
        "is whole is kept. Records that cannot be compared: remove one side from the store, then run the same."
    )


def few_samples(fewest: int) -> str:
    """A warning where a task has few samples, the least of all tasks."""
    return f"A task has only {fewest} {'sample' if fewest == 1 else 'samples'}: intervals are rough."


def flag_notes(units: Mapping[str, list[UnitResult]]) -> tuple[str, ...]:
    """One note per kind of implausible result, over all rows (keyed by label)."""
    flagged: dict[str, list[str]] = {}
    for label, results in units.items():
        for unit in results:
            for flag in unit.flags:
                flagged.setdefault(flag, []).append(f"{unit.entry.unit} ({label})")
    return tuple(
        f"Flagged {_meant(flag)}: {len(where)} {'unit' if len(where) == 1 else 'units'}, {_listed(where)}."
        for flag, where in sorted(flagged.items())
    )


def _meant(flag: str) -> str:
    return f"{flag} ({FLAG_MEANINGS[flag]})" if flag in FLAG_MEANINGS else flag


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")
