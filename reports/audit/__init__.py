"""Audit of the paper's own numbers: what is derived there, recomputed from what it is derived from.

A printed number stands for all values that round to it. A derived value follows if some such values of its sources
give some such value of it; that a value follows does not say that it is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenweight.pipeline.experiment import Emphasis
from tokenweight.reports.audit.claims import Cells, check_claim
from tokenweight.reports.audit.numbers import Interval, interval_of, recompute
from tokenweight.reports.audit.rules import Audit, Derivation, EmphasisCheck, ValueCheck, rules
from tokenweight.reports.emphasis import emphasise
from tokenweight.reports.targets import TARGETS, get_target


def audit(cells: Cells) -> Audit:
    """Check all that `rules.json` says how to check, on these cells, by place as of `paper_cells()`."""
    return Audit(
        values=tuple(check_values(cells)),
        emphasis=tuple(check_emphasis(cells)),
        claims=tuple(check_claim(claim, cells) for claim in rules().claims),
        relations=(longbench_sides(cells),),
        unchecked=rules().unchecked,
    )


def check_values(cells: Cells) -> Iterator[ValueCheck]:
    """Each derived value; one that does not follow is tried again with its sources' other printed values."""
    derived = [(rule, cell, sources) for rule in rules().derivations for cell, sources in rule.each()]
    found = [_check_value(*each, cells) for each in derived]
    # Places whose value is printed elsewhere too, and differently there.
    differing = [(c.cell, *c.sources) for c in found if c.kind == "repeated value" and not c.follows]
    twice = {here: there for pair in differing for here, there in (pair, pair[::-1])}
    for (rule, cell, sources), check in zip(derived, found, strict=True):
        if check.follows:
            yield check
            continue
        other = {source: twice[source] for source in sources if source in twice}
        again = tuple(other.get(source, source) for source in sources)
        helps = bool(other) and cell not in other.values() and _check_value(rule, cell, again, cells).follows
        follows_with = {place: cells[place].printed for place in other.values()} if helps else {}
        yield check.model_copy(update={"follows_with": follows_with, "remark": rules().remarks.get(cell, "")})


def _check_value(rule: Derivation, cell: str, sources: Sequence[str], cells: Cells) -> ValueCheck:
    terms = [interval_of(source, cells[source]) for source in sources]
    result = recompute(rule, terms)
    as_printed = recompute(rule, [Interval(term.middle, term.middle) for term in terms])
    printed, first = cells[cell], cells[sources[0]]
    # A value that is repeated with as many decimals is the same number, not only a near one.
    same = rule.kind != "repeated value" or printed.decimals != first.decimals or printed.value == first.value
    return ValueCheck(
        kind=rule.kind,
        cell=cell,
        place=rule.place,
        reading=rule.reading,
        sources={source: cells[source].printed for source in sources},
        printed=printed.printed,
        recomputed=float(as_printed.middle),
        low=float(result.low),
        high=float(result.high),
        follows=same and result.meets(interval_of(cell, printed)),
    )


def check_emphasis(cells: Cells) -> Iterator[EmphasisCheck]:
    """Bold, italic and underline of each cell of a table, by the rule in its caption."""
    for name in dict.fromkeys(place.split("/")[0] for place in cells):
        table_rule = get_target(name).emphasis if name in TARGETS else Emphasis()
        places = [place.split("/") for place in cells if place.startswith(f"{name}/")]
        for column in dict.fromkeys(column for _, _, column in places):
            rows = [row for _, row, c in places if c == column and cells[f"{name}/{row}/{c}"].value is not None]
            values = {row: cells[f"{name}/{row}/{column}"].value for row in rows}
            rule = Emphasis() if column.endswith("-difference") else table_rule
            marks = emphasise(rule, column, values, 2)[0]
            for row in rows:
                place = f"{name}/{row}/{column}"
                yield EmphasisCheck(cell=place, printed=cells[place].emphasis, recomputed=marks.get(row, ()))


def longbench_sides(cells: Cells) -> str:
    """How LongBench full of Table 3 lies between its two sides, as a sentence."""
    shares = {}
    for row in dict.fromkeys(place.split("/")[1] for place in cells if place.startswith("table-3/")):
        columns = ("longbench", "longbench-le8k", "longbench-gt8k")
        full, short, long = (cells[f"table-3/{row}/{column}"].value for column in columns)
        if full is not None and short is not None and long is not None and short != long:
            shares[row] = (full - long) / (short - long)
    outside = [row for row, share in shares.items() if not 0 <= share <= 1]
    least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    between = f"not between in {', '.join(outside)}" if outside else f"between its two sides in all {len(shares)} rows"
    return (
        f"Table 3, LongBench: full is {between}. As a mean of ≤8k and >8k it would give ≤8k a weight of "
        f"{shares[least]:.2f} ({least}) to {shares[most]:.2f} ({most}), no common one. It need not: each side averages "
        "over tasks, full averages each task over all its samples, and tasks differ in their share of long samples. "
        "So nothing here contradicts, and full cannot be recomputed from the sides."
    )
