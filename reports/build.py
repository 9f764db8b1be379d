"""`build_report`: read the records, compute every cell, judge the columns, number the notes."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from tokenweight.pipeline.experiment import Column, Emphasis, Experiment, Row
from tokenweight.pipeline.manifest import Manifest, StageEntry
from tokenweight.pipeline.measures import PhraseToken
from tokenweight.pipeline.store import read_record
from tokenweight.reports.agreement import origins
from tokenweight.reports.comparisons import Results, compare, infer, judge
from tokenweight.reports.display import emphasise, words
from tokenweight.reports.estimates import Estimate, Reason
from tokenweight.reports.measuring import is_filled, measure_all
from tokenweight.reports.model import Cell, Mark, Report, ReportColumn, ReportRow, Statistic, notes
from tokenweight.reports.paper.numbers import paper_number
from tokenweight.reports.samples import Samples, read_samples
from tokenweight.reports.statistics import correlation
from tokenweight.reports.targets.columns import phrase_columns

_FEW_SAMPLES = 20  # of a task; with fewer its interval holds the mean less often than it says
_NAMED = 3  # units that a flag's note spells out

# What the flags of an evaluation mean; the evaluation names them, and may have others.
# With one of these a cell is never bold: no answers, or another protocol's.
_SPOILING = {"all_empty", "double_bos", "implausibly_perfect", "missing_bos", "prompt_echoed"}
FLAG_MEANINGS: dict[str, str] = json.loads(Path(__file__).with_name("flags.json").read_text("utf-8"))


def build_report(manifest: Manifest, store_root: Path) -> Report:
    """The manifest's experiment, filled from the records below `store_root`.

    A pure function of its arguments and of those records: no clock, no randomness that is not seeded, no data, no model.
    """
    samples = read_samples(manifest, store_root)
    experiment = _as_it_ran(manifest, samples, store_root)
    manifest, seeds = manifest.model_copy(update={"experiment": experiment}), manifest.seeds
    results = Results(experiment, measure_all(samples, manifest), seeds)
    rows = [row for row in experiment.rows if row.shown]
    columns = [column for column in experiment.columns if column.shown]
    places = {(row.key, column.key): (row, column) for row in rows for column in columns if is_filled(row, column)}
    filled = {(row, column): results.means[column].cells[row] for row, column in places}
    pairs = {}
    for key, (row, column) in places.items():
        baseline = row.reference if column.difference_of else experiment.baseline
        if baseline not in (None, row.key):
            pairs[key] = (row.key, str(baseline), column.difference_of or column.key)
    differences = compare(results, pairs)
    for place, (row, column) in places.items():
        if results.is_share(column) and filled[place].value == 0:
            filled[place] = replace(filled[place], reasons=(Reason(row.name, words("all_zero")),))
    units = [unit for held in samples.units.values() for unit in held]
    spoiled = {unit.entry.address for unit in units if _SPOILING.intersection(unit.summary.get("flags") or ())}
    sound = {place: cell for place, cell in filled.items() if spoiled.isdisjoint(cell.addresses)}
    emphasis, withheld = _emphasis(results, columns, rows, sound)
    reasons = dict[str, dict[str, None]]()  # text -> rows that it is said of, in the order in which cells have them
    for reason in (reason for cell in filled.values() for reason in cell.reasons):
        reasons.setdefault(reason.text, {})[reason.row] = None
    numbers = {text: number for number, text in enumerate(reasons, start=1)}

    def cell(row: Row, column: Column) -> Cell:
        paper, key = paper_number(experiment.name, row.key, column.paper), (row.key, column.key)
        if key not in filled:
            return Cell(status="not_in_paper", paper=paper)
        found, difference = filled[key], differences.get(key)
        interval = difference if column.difference_of and difference else infer(results, row.key, column.key)
        return Cell(
            **{name: getattr(found, name) for name in ("status", "value", "spread", "n", "n_expected", "addresses")},
            by_seed=tuple(one.value for one in results.by_seed(row.key, column.key)) if len(seeds) > 1 else (),
            ci_low=interval.ci_low,
            ci_high=interval.ci_high,
            emphasis=emphasis.get(key, ()),
            marks=tuple(sorted({numbers[reason.text] for reason in found.reasons})),
            difference=difference,
            paper=paper,
        )

    fewest = _fewest(results, filled)
    trained = {(entry.row, entry.seed): entry.train.address for entry in manifest.rows if entry.train}
    absent = sum(cell.status != "complete" for cell in filled.values())
    general = [
        *([words("repair", absent, len(filled), manifest.command)] if absent else ()),
        *_on_the_run(manifest),
        *origins({unit.entry.address: unit for unit in units}.values()),
        *(remark for c in columns for r in rows if (r.key, c.key) in filled for remark in filled[r.key, c.key].remarks),
        *_flags(manifest, samples),
        *([words("few_samples", fewest)] if fewest < _FEW_SAMPLES else ()),
        *([words("at_floor", names)] if (names := [c.name for c in columns if c.key in results.at_floor]) else ()),
    ]
    of_table = [*dict.fromkeys(general), *(words("withheld", names, lacking) for lacking, names in withheld.items())]
    of_cells = (": ".join(filter(None, (_named_rows(said, len(seeds)), text))) for text, said in reasons.items())
    return Report(
        target=experiment.name,
        title=experiment.title,
        paper_place=experiment.paper_place,
        scale=manifest.scale,
        stub=experiment.stub,
        columns=tuple(
            ReportColumn(
                **{name: getattr(column, name) for name in ("key", "label", "group", "decimals", "paper_label")},
                signed=column.difference_of is not None,
                difference_of=column.difference_of,
                paper_column=column.paper,
            )
            for column in columns
        ),
        rows=tuple(
            ReportRow(
                **{name: getattr(row, name) for name in ("key", "group", "label", "recipe", "rule_below")},
                paper_label=row.paper_label or row.label,
                artifacts=tuple(trained.get((row.key, seed)) for seed in seeds) if trained else (),
                cells=tuple(cell(row, column) for column in columns),
            )
            for row in rows
        ),
        seeds=len(seeds),
        baseline=results.labels[experiment.baseline] if experiment.baseline else None,
        emphasis=words("emphasis", experiment.emphasis, results.labels, {c.paper: c.name for c in experiment.columns}),
        notes=notes(of_table, of_cells),
        statistics=_correlations(experiment, rows, results),
        findings=judge(results) if len(seeds) > 1 else (),
    )


def _as_it_ran(manifest: Manifest, samples: Samples, store_root: Path) -> Experiment:
    """With what only records know: Table 1's tokens, a column each; parameters of the scorers in place of the paper's."""
    experiment, trained = manifest.experiment, {entry.row: entry.train for entry in manifest.rows}
    if isinstance(plain := experiment.columns[0].measure, PhraseToken):
        texts = (unit.summary.get("tokens") for units in samples.units.values() for unit in units)
        columns = phrase_columns(plain, tuple(map(str, next(filter(None, texts), ()))))
        return experiment.model_copy(update={"columns": columns})
    rows = list(experiment.rows)
    for number, row in enumerate(rows):
        if any(setting[:2] == ("scorer.model.kind", "pretrain") for setting in manifest.recipes.get(row.recipe, ())):
            own = _scorer_parameters(trained.get(row.key), store_root)
            label = f"in place of {row.label}" if own is None else f"{own / 1e6:.1f} M"
            rows[number] = row.model_copy(update={"label": label})
    return experiment.model_copy(update={"rows": tuple(rows)})


def _scorer_parameters(train: StageEntry | None, store_root: Path) -> int | None:
    """Parameters of the model whose scores a training read, by its record; None where the store does not have it."""
    record = read_record(store_root / train.address) if train else None
    for name in ("scores", "model"):
        fingerprint = str((record or {}).get("inputs", {}).get(name))
        found = map(read_record, store_root.glob(f"*/*-{fingerprint[:8]}"))
        record = next((one for one in found if one and one.get("fingerprint") == fingerprint), None)
    known: int | None = (record or {}).get("facts", {}).get("parameters")
    return known


def _emphasis(
    results: Results, columns: Sequence[Column], rows: Sequence[Row], filled: Mapping[tuple[str, str], Estimate]
) -> tuple[dict[tuple[str, str], tuple[Mark, ...]], dict[str, list[str]]]:
    """Marks of cells, none where all rows are at the floor; by the rows that lack a value the columns not judged for it."""
    rule, withheld = results.experiment.emphasis, dict[str, list[str]]()
    marks = dict[tuple[str, str], tuple[Mark, ...]]()
    for column in columns:
        values = {row.key: filled[row.key, column.key].value for row in rows if (row.key, column.key) in filled}
        of_column = Emphasis(set_apart=rule.set_apart) if column.key in results.at_floor else rule
        found, lacking = emphasise(of_column, column.paper, values, column.decimals)
        marks |= {(row, column.key): held for row, held in found.items()}
        if lacking:
            withheld.setdefault(", ".join(row.name for row in rows if row.key in lacking), []).append(column.name)
    return marks, withheld


def _fewest(results: Results, filled: Collection[tuple[str, str]]) -> int:
    sizes = [_FEW_SAMPLES]
    for key, measured in results.means.items():
        shown = measured.scores[[row for row in measured.scores.columns if (row, key) in filled]]
        sizes += shown.groupby(level=0).count().to_numpy().ravel().tolist()
    return int(min(n for n in sizes if n))


def _correlations(experiment: Experiment, rows: Sequence[Row], results: Results) -> tuple[Statistic, ...]:
    """Correlations of two columns over the rows; none where a row has no value in one of them."""
    if experiment.correlate is None:
        return ()
    first, second = experiment.correlate
    values = [[results.means[column].cells[row.key].value for column in (first, second)] for row in rows]
    whole = pd.DataFrame(values, dtype=np.float64).dropna()
    return tuple(
        Statistic(
            name=f"{name} correlation of {first} and {second}",
            value=correlation(name.lower(), whole) if len(whole) == len(rows) else None,
            n=len(whole),
            paper=printed,
        )
        for name, printed in experiment.correlations_printed
    )


def _on_the_run(manifest: Manifest) -> Iterator[str]:
    """What the table is, divergences from the paper, and which rows failed, and why."""
    yield from (manifest.about, *manifest.experiment.divergences, *manifest.divergences)
    failed: dict[str, dict[str, None]] = {}
    for entry in manifest.rows:
        if entry.failed:
            failed.setdefault(entry.failed, {})[manifest.label((entry.row, entry.seed))] = None
    for why, rows in failed.items():
        yield words("failed", _named_rows(rows, len(manifest.seeds)), why)


def _named_rows(labels: Iterable[str], seeds: int) -> str:
    """Labels of rows with a seed each, once a row: "Uniform, seed 1, LCDE" where LCDE is there with every seed."""
    rows = dict[str, list[str]]()
    for label in labels:
        rows.setdefault(label.partition(", seed ")[0], []).append(label)
    return ", ".join(row if len(found) == seeds else ", ".join(found) for row, found in rows.items() if row)


def _flags(manifest: Manifest, samples: Samples) -> Iterator[str]:
    """One note per kind of implausible result, over the units of all rows; what several seeds share counts once."""
    flagged: dict[str, dict[str, str]] = {}  # by address
    for row, seed in product(manifest.experiment.rows, manifest.seeds):
        for unit in samples.units.get((row.key, seed), ()):
            for flag in unit.summary.get("flags") or ():
                flagged.setdefault(str(flag), {}).setdefault(unit.entry.address, f"{unit.entry.unit} ({row.name})")
    for flag, where in sorted(flagged.items()):
        units = list(dict.fromkeys(where.values()))
        yield words("flagged", flag, FLAG_MEANINGS.get(flag, ""), len(where), units, _NAMED)
