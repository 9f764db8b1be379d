"""The page: tables, notes, findings, the audit of the paper's own numbers; its script opens what is behind a number."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from tokenweight.reports.display import (
    column_n_text,
    difference_legend,
    finding_texts,
    has_differences,
    interval_legend,
    legend,
    paper_beside,
    statistic_texts,
)
from tokenweight.reports.html.artifacts import Artifacts
from tokenweight.reports.html.data import page_data
from tokenweight.reports.html.divergences import divergences
from tokenweight.reports.html.section import NotRun, Section
from tokenweight.reports.html.table import column_groups, row_views
from tokenweight.reports.html.text import plain, shown
from tokenweight.reports.model import Report
from tokenweight.webpage import page_environment, script_json


def render(sections: Sequence[Section], store_root: Path, not_run: Sequence[NotRun] = ()) -> str:
    """One page of all sections, whole in itself; `not_run` is listed with the commands that run it."""
    environment = page_environment(Path(__file__).parent, finalize=shown)
    artifacts = Artifacts(store_root)
    numbers = count()
    data = plain(page_data(sections, artifacts))
    return environment.get_template("page.html.jinja").render(
        title=_title(sections),
        sections=[
            {
                "report": section.report,
                "command": section.command,
                "anchor": re.sub(r"[^A-Za-z0-9-]", "-", section.report.target),
                "choices": choices(section.report),
                "groups": column_groups(section.report),
                "sizes": [column_n_text(section.report, index) for index in range(len(section.report.columns))],
                "rows": row_views(section.report, numbers),
                "about": about(section),
                "divergences": section.divergences,
                "legend": _legend(section.report),
                "statistics": statistic_texts(section.report),
                "findings": finding_texts(section.report),
                "audit": _audit_of(section.report.target),
                "figures": [b64encode(svg.encode()).decode() for svg in section.figures],
            }
            for section in sections
        ],
        not_run=not_run,
        divergences=divergences(),
        summary=_summary(artifacts),
        data=script_json(data),
    )


def choices(report: Report) -> dict[str, str]:
    """What the cells of this table hold beside their values, by the name of what shows it."""
    cells = report.cells
    return {
        **({"interval": "95 % interval"} if any(cell.ci_low is not None for cell in cells) else {}),
        **({"difference": f"Difference to {report.baseline or 'the baseline'}"} if has_differences(report) else {}),
        **({"paper": "The paper"} if any(paper_beside(cell) for cell in cells) else {}),
    }


def about(section: Section) -> list[str]:
    """The report's notes about the whole table, without its divergences."""
    return [note.text for note in section.report.notes if note.mark is None and note.text not in section.divergences]


def _audit_of(target: str) -> Any:
    """What the audit of the paper's own numbers finds about a target; None where that room is absent."""
    try:
        return import_module("tokenweight.reports.audit.about").findings_about(target)
    except ModuleNotFoundError:
        return None


def _title(sections: Sequence[Section]) -> str:
    return sections[0].report.heading if len(sections) == 1 else "Token weighting: tables and figures from records"


def _legend(report: Report) -> list[str]:
    lines = [legend(report, "The paper's number"), f"Interval: {interval_legend()}"]
    if has_differences(report):
        lines += [
            difference_legend(report),
            "↑ ↓: the corrected p is below 0.05; the arrow is the difference's direction.",
        ]
    return lines


def _summary(artifacts: Artifacts) -> dict[str, object]:
    records = list(artifacts.records.values())
    evaluations = [record for record in records if record.get("stage") == "evaluate"]
    return {"evaluations": len(evaluations), "others": len(records) - len(evaluations)}
