"""An experiment at a scale in words: labels by what is set or swept, columns at its lengths, notes of what departs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenweight.errors import UserError, choose
from tokenweight.pipeline.experiment import Column, Described, Experiment, Figure, Lengths, Row
from tokenweight.recipes.inputs import as_options, load_all, without_places, worded
from tokenweight.recipes.recipe import Recipe
from tokenweight.recipes.schema import HubBase, PretrainBase
from tokenweight.reports.targets.columns import about, columns_at, headlines, notes_of, tokens_label, usual_columns
from tokenweight.reports.targets.members import RECIPE, Member, members, short_names
from tokenweight.reports.targets.schema import ExperimentSpec

_SYMBOLS = {"kappa": "κ", "lambda": "λ", "learning_rate": "learning rate", RECIPE: "recipe"}
_PHI2_ID = "microsoft/phi-2"


def notes(
    spec: ExperimentSpec, found: Sequence[Member], recipes: Mapping[str, Recipe], scale: str, given: Mapping[str, str]
) -> tuple[str, ...]:
    """Where a run departs from the paper, a sentence each; recipes by row, what the user gave by option."""
    of_file = {name: value for name in ("base", "corpus") if (value := getattr(spec, name))}
    of_rows = {m.row.label or m.row.key or str(m.row.recipe): m.row.set for m in found}
    symbols, _ = _fields(found)
    swept = {field: dict.fromkeys(m.words[field] for m in found if field in m.words) for field in symbols}
    said = {
        "Run with": ", ".join(map(" ".join, as_options(given))),
        "Set for all rows:": _said({**of_file, **spec.scales.get(scale, {}), **spec.set}),
        "Set for": "; ".join(f"{name}: {_said(own)}" for name, own in of_rows.items() if own),
        "Swept:": "; ".join(f"{symbols[field]} ({field}): {', '.join(values)}" for field, values in swept.items()),
    }
    known = {m.row.recipe: recipes[m.key] for m in found if m.row.recipe and "/seed-" not in m.row.recipe}
    return (
        *(f"{start} {text}." for start, text in said.items() if text),
        *(_model(m, recipes[m.key]) for m in found if m.row.recipe is None),
        *_departures(known),
    )


def _said(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {worded(value)}" for key, value in settings.items())


def labels_of(rows: Sequence[Member]) -> tuple[tuple[str, ...], dict[str, tuple[str, str]]]:
    """Headings of the label columns, and group and label of each row by its key.

    Of a sweep the slowest setting is the group where there are several and every row has them all.
    """
    if any(m.row.label or m.row.group or not m.values for m in rows):
        named = {m.key: m.row.label for m in rows if not m.values}  # of a labelled sweep the values tell rows apart
        labels = {m.key: (m.row.group, named.get(m.key) or m.key.removeprefix(f"{m.row.group} ")) for m in rows}
        return (("Group", "Model") if any(group for group, _ in labels.values()) else ("Model",)), labels
    symbols, whole = _fields(rows)

    def text_of(member: Member, fields: Iterable[str]) -> str:
        texts = ((field, member.words[field]) for field in fields)
        return ", ".join(text if field == RECIPE else f"{symbols[field]} = {text}" for field, text in texts)

    first, *others = symbols
    if not whole or not others:
        return (symbols[first] if whole else "member",), {m.key: ("", text_of(m, m.values)) for m in rows}
    stub = (symbols[first], ", ".join(symbols[field] for field in others))
    return stub, {m.key: (text_of(m, [first]), text_of(m, others)) for m in rows}


def experiment_at(spec: ExperimentSpec, lengths: Lengths) -> Experiment:
    """With columns and labels at a run's lengths, beside those of the paper's."""
    found, as_they_are, other_bases = members(spec), not spec.recipes, any(row.base for row in spec.rows)
    papers = Lengths(ruler=spec.paper_lengths_tokens)
    if spec.columns:
        columns, notes = columns_at(spec.columns, lengths), notes_of(spec.notes_of, "notes")
        labels_there = {column.paper: column.label for column in columns_at(spec.columns, papers) if column.paper}
        columns = tuple(c.model_copy(update={"paper_label": labels_there.get(c.paper or "")}) for c in columns)
    else:
        columns = usual_columns(spec.measured_on, lengths, brief=not as_they_are)
        notes = notes_of(spec.measured_on, "notes", *(["other_tokenizers"] if as_they_are else []))
    stub, labels = labels_of(found)
    rows = []
    for m in found:
        group, label = labels[m.key]
        looks = m.row.model_dump(include={"rule_below", "fills", "reference", "shown", "unit"})
        paper_label = _scaled(label, papers) if spec.columns else ""
        looks |= {"key": m.key, "label": _scaled(label, lengths), "recipe": m.recipe, "group": group}
        rows.append(Row(**looks, paper_label=paper_label))
    alike = {name: getattr(spec, name) for name in Described.model_fields if name not in ("rows", "columns")}
    changes = {
        "title": spec.title or _title(found),
        "stub": spec.stub or stub,
        "baseline": _baseline(spec, found, labels),
        "divergences": (*notes, *spec.divergences),
        "figure": spec.figure or _figure(found, columns, spec.measured_on),
    }
    same_questions = not (as_they_are or other_bases)
    _check_names(spec, found, columns)
    return Experiment(**{**alike, **changes}, rows=tuple(rows), columns=columns, same_questions=same_questions)


def _check_names(spec: ExperimentSpec, found: Sequence[Member], columns: Sequence[Column]) -> None:
    """UserError for a row or column that is named and is not there: else the table of a complete run would say so."""
    rows, keys = [m.key for m in found], [column.key for column in columns]
    named = [(f"rows[{m.number}].reference", m.row.reference, rows) for m in found if m.row.reference]
    named += [("emphasis", row, rows) for row, _ in spec.emphasis.set_apart]
    named += [("emphasis", row, rows) for row in [spec.emphasis.underline_above_row] if row]
    named += [("findings", row, rows) for finding in spec.findings for row in (finding.higher, finding.lower)]
    named += [("correlate", key, keys) for key in spec.correlate or ()]
    for place, name, known in named:
        if name not in known:
            raise UserError(f"{place}: {name!r} is unknown{choose(name, known)}")
    for column in columns:
        read = (*getattr(column.measure, "columns", ()), *filter(None, [column.difference_of]))
        if lacking := [key for key in read if key not in keys]:
            raise UserError(
                f"columns: {column.key} is made of {', '.join(lacking)}, not among them; add what it is made of"
            )


def _scaled(label: str, lengths: Lengths) -> str:
    short, long = tokens_label(lengths.ruler[0]), tokens_label(lengths.ruler[-1])
    return label.replace("{short}", short).replace("{long}", long)


def _fields(rows: Sequence[Member]) -> tuple[dict[str, str], bool]:
    """What is swept, each as a reader of the paper knows it (κ, λ), and whether every row has them all."""
    fields = dict.fromkeys(field for m in rows for field in m.values)
    symbols = {field: _SYMBOLS.get(name, name) for field, name in short_names(fields).items()}
    return symbols, all(set(m.values) == set(fields) for m in rows)


def _title(rows: Sequence[Member]) -> str:
    recipes = list(dict.fromkeys(m.row.recipe for m in rows if m.row.recipe))
    if not recipes:
        return f"Under the paper's evaluation: {', '.join(m.key for m in rows)}"
    symbols, _ = _fields(rows)
    over = f" over {' and '.join(symbols.values())}" if symbols else ""
    what = "Sweep" if symbols else "Models"
    return f"{what} of {recipes[0]}{over}" if len(recipes) == 1 else f"{what}{over or f' of {len(recipes)} recipes'}"


def _baseline(spec: ExperimentSpec, rows: Sequence[Member], labels: Mapping[str, tuple[str, str]]) -> str | None:
    if spec.baseline is None:
        return rows[0].key if len(rows) > 1 and not spec.columns else None
    names = {name: m.key for m in rows for name in (m.key, labels[m.key][1], " ".join(filter(None, labels[m.key])))}
    if spec.baseline not in names:
        raise UserError(f"baseline: {spec.baseline!r} is not a row; choose one of {', '.join(m.key for m in rows)}")
    return names[spec.baseline]


def _figure(rows: Sequence[Member], columns: tuple[Column, ...], measured: Sequence[str]) -> Figure | None:
    symbols, whole = _fields(rows)
    if not symbols:
        return next((Figure(**one["figure"]) for one in about(measured).values() if "figure" in one), None)

    def place(member: Member, field: str) -> Any:
        return without_places(value) if not isinstance(value := member.values[field], str) else member.words[field]

    values = {m.key: {symbols[f]: place(m, f) for f in symbols} if whole else {"member": m.key} for m in rows}
    return Figure(kind="sweep", values=values, columns=headlines(columns, measured))


def _model(member: Member, recipe: Recipe) -> str:
    """Which model a row shows that has no recipe."""
    base = recipe.base
    of_hub = f"{base.repo_id} at {base.revision}" if isinstance(base, HubBase) else ""
    which = of_hub or without_places(member.row.base or base.kind)
    return f"{member.key}: {which}; read with inputs of up to {recipe.context_tokens} tokens."


def lengths_of(recipes: Sequence[Recipe]) -> Lengths:
    """The lengths of all recipes together: of models of different contexts those that any of them is measured at."""
    evaluations = [recipe.evaluation for recipe in recipes]
    first, longest = evaluations[0], max(recipe.context_tokens for recipe in recipes)
    short = first.planted.short_tokens
    return Lengths(
        ruler=tuple(sorted({n for evaluation in evaluations for n in evaluation.ruler.lengths_tokens})),
        perplexity=tuple(sorted({n for evaluation in evaluations for n in evaluation.perplexity.lengths_tokens})),
        planted=(*range(short, longest, short), longest),  # multiples of the short context, up to the long one
        longbench_split=first.longbench.split_tokens,
        longbench_unit=first.longbench.length_unit,
    )


def _departures(recipes: Mapping[str, Recipe]) -> tuple[str, ...]:
    """Where models replace others than those of the paper's own recipes, a sentence each; recipes by their names."""
    found: dict[str, None] = {}
    scorers: dict[str, None] = {}
    for theirs, ours in zip(load_all(list(recipes), "paper"), recipes.values(), strict=True):
        of_phi = isinstance(theirs.base, HubBase) and theirs.base.repo_id == _PHI2_ID
        if of_phi and isinstance(ours.base, PretrainBase):
            found["A small model of its architecture, pre-trained by the pipeline, replaces Phi-2."] = None
        factors = [one.extension.long_tokens / one.base.context_tokens for one in (ours, theirs) if one.extension]
        if len(set(factors)) == 2:
            found[f"The context is extended by a factor of {factors[0]:g}; the paper's by {factors[1]:g}."] = None
        pretrained = ours.scorer and isinstance(ours.scorer.model, PretrainBase)
        if pretrained and theirs.scorer and isinstance(theirs.scorer.model, HubBase):
            scorers[theirs.scorer.model.repo_id.rpartition("/")[2]] = None
    if scorers:
        found[f"Small models, pre-trained by the pipeline, replace the scorers {', '.join(scorers)}."] = None
    return tuple(found)
