"""What a model's page on the Hub has: its card, and its results in the Hub's format, from tables of the store."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResultEntry, ModelCardData, eval_result_entries_to_yaml
from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined]

from tokenweight.pipeline.manifest import Manifest, RowEntry
from tokenweight.pipeline.store import read_record
from tokenweight.recipes.recipe import drawn, shown
from tokenweight.recipes.schema import SCALES
from tokenweight.reports import display
from tokenweight.reports.build import build_report
from tokenweight.reports.markdown import escape, line
from tokenweight.reports.model import Cell, Report, ReportColumn, ReportRow
from tokenweight.reports.writing import styled
from tokenweight.webpage import plain_environment

RESULTS_FOLDER = ".eval_results"  # where the Hub reads results
_LIMITS = ("samples", "documents")


class ModelTable(NamedTuple):
    """A table that has a model, its row there, and the columns that it has a value in; of the model's seed alone."""

    manifest: Manifest
    report: Report
    row: ReportRow
    seed: int
    values: Sequence[tuple[ReportColumn, Cell]]

    @property
    def settings(self) -> dict[str, Any]:
        """Those of its recipe, with what its own seed draws: a manifest has the first seed's."""
        found = {key: value for key, value, _ in self.manifest.recipes[self.row.recipe]}
        if not self.seed:
            return found
        scale = next((one for one in SCALES if one == self.manifest.scale), None)
        if scale is None:  # of an experiment's own: whether a seed draws the base is not known here
            found.pop("base.seed", None)
        return found | drawn(self.seed, scale or "paper", found)


def model_table(manifest: Manifest, entry: RowEntry, store_root: Path) -> ModelTable | None:
    """The table with one seed; None where it does not show the row."""
    rows = tuple(row for row in manifest.rows if row.seed == entry.seed)
    one_seed = manifest.model_copy(update={"rows": rows})
    report = styled(build_report(one_seed, store_root), "ours")
    row = next((row for row in report.rows if row.key == entry.row), None)
    if row is None:
        return None
    cells = zip(report.columns, row.cells, strict=True)
    return ModelTable(manifest, report, row, entry.seed, [one for one in cells if one[1].value is not None])


def model_tables(shown: Iterable[tuple[Manifest, RowEntry]], store_root: Path) -> list[ModelTable]:
    """All tables with a value of a model: of a scale's column that of most samples, and of these the newest.

    Tables that show the same evaluations each keep them.
    """
    tables = [table for one in shown if (table := model_table(*one, store_root))]
    best = dict[tuple[str, str], tuple[int, str, tuple[str, ...]]]()
    for table in tables:
        for column, cell in table.values:
            newest = max((record["started"] for record in _records(cell, store_root)), default="")
            found = cell.n, newest, cell.addresses
            place = table.manifest.scale, column.key
            best[place] = max(best.get(place, found), found)
    for number, table in enumerate(tables):
        kept = [one for one in table.values if best[table.manifest.scale, one[0].key][2] == one[1].addresses]
        tables[number] = table._replace(values=kept)
    return [table for table in tables if table.values]


def _records(cell: Cell, store_root: Path) -> list[dict[str, Any]]:
    return [record for address in cell.addresses if (record := read_record(store_root / address))]


def card(name: str, tables: Iterable[ModelTable], record: Mapping[str, Any] | None, license: str | None) -> str:
    """README.md with its front matter; `record`: of the model's training, where the store has it."""
    found = list(tables)
    settings = found[0].settings
    front = ModelCardData(
        base_model=settings.get("base.repo_id"),
        datasets=[settings["corpus.repo_id"]] if record and "corpus.repo_id" in settings else None,
        library_name="transformers",
        license=license,
        pipeline_tag="text-generation",
        tags=["tokenweight", "long-context"],
    )
    templates = plain_environment(Path(__file__).parent)
    templates.filters |= {"md": escape, "line": line, "shown": shown}
    return templates.get_template("card.md.jinja").render(
        front=front.to_yaml(), name=name, tables=found, settings=settings, record=record, display=display
    )


def hub_results(tables: Iterable[ModelTable], store_root: Path, source_url: str | None) -> dict[str, str]:
    """YAML files by name, one a column, as the Hub reads them; `source_url`: the page that they are from.

    Only of what was measured on all of one data set of the Hub, at its revision: a local copy may be another, and what
    RULER generates is on no page of the Hub.
    """
    found = {}
    for column, cell in (place for table in tables for place in table.values):
        records = _records(cell, store_root)
        hub = [_hub_of(record["config"]) for record in records]
        if column.difference_of or not hub or hub[0] is None or any(one != hub[0] for one in hub):
            continue
        interval = "" if cell.ci_low is None else f", 95 % interval {display.interval_text(cell, column)}"
        one = EvalResultEntry(
            dataset_id=hub[0]["repo_id"],
            dataset_revision=hub[0]["revision"],
            task_id=(column.key.split(":")[1:] or [column.key])[0],
            value=round(cell.value or 0.0, column.decimals),
            date=max(record["started"] for record in records),
            source_url=source_url,
            source_name="Model card" if source_url else None,
            notes=f"{column.name}, tokenweight; {cell.n} samples{interval}",
        )
        found[f"{column.key.replace(':', '-')}.yaml"] = yaml_dump(eval_result_entries_to_yaml([one]))
    return found


def _hub_of(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The data set of the Hub that a unit read all of, by its record's configuration."""
    own = config["evaluation"].get(config["unit"]["benchmark"].partition(":")[0]) or {}
    if any(own.get(limit) for limit in _LIMITS):
        return None
    corpus, protocol = own.get("corpus") or {}, config["protocol"]
    hub = protocol.get("hub") or (corpus if "repo_id" in corpus else None)
    if isinstance(task := protocol.get("task"), dict):  # of lm-eval, as its file has it
        repo_id, said = str(task.get("dataset_path")), task.get("dataset_kwargs") or {}
        is_hub = (
            re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", repo_id) and "data_files" not in said and not Path(repo_id).exists()
        )
        hub = {"repo_id": repo_id, "revision": said.get("revision")} if is_hub else None
    return hub and {name: hub[name] for name in ("repo_id", "revision")}
