"""What rows, runs and columns are called at a run's lengths, and which cells a row fills."""

from __future__ import annotations

from tokenweight.reports.manifest import Manifest
from tokenweight.reports.measures import Difference
from tokenweight.reports.targets.columns import tokens_label
from tokenweight.reports.targets.model import Column, Row, Target

Run = tuple[str, int]  # row and seed


def seeds_of(manifest: Manifest) -> list[int]:
    return sorted({entry.seed for entry in manifest.rows}) or [0]


def run_labels(target: Target, manifest: Manifest) -> dict[Run, str]:
    seeds = seeds_of(manifest)
    return {
        (row.key, seed): row_label(row, manifest) + (f", seed {seed}" if len(seeds) > 1 else "")
        for row in target.rows
        for seed in seeds
    }


def is_filled(row: Row, column: Column) -> bool:
    """Whether the paper has a number there. A difference needs a row to refer to."""
    if isinstance(column.measure, Difference) and row.reference is None:
        return False
    return row.fills is None or column.paper in row.fills


def row_label(row: Row, manifest: Manifest) -> str:
    """Both labels of a row as one, at this run's lengths: "Frozen Sparse", "No-train 1k", "Uniform"."""
    label = scaled(row.label, manifest.ruler_lengths_tokens)
    return " ".join(part for part in (row.group, label) if part not in ("", "-"))


def scaled(label: str, lengths_tokens: tuple[int, ...]) -> str:
    short, long = tokens_label(lengths_tokens[0]), tokens_label(lengths_tokens[-1])
    return label.replace("{short}", short).replace("{long}", long)


def paper_labels(target: Target, manifest: Manifest) -> dict[str | None, str]:
    """Headings of the paper's columns, by their names in the paper's data."""
    lengths = target.paper_lengths_tokens
    of_paper = Manifest(
        target=target.name,
        scale="paper",
        rows=(),
        longbench_split_tokens=8192,
        ruler_lengths_tokens=lengths,
        phrase_tokens=manifest.phrase_tokens,
    )
    return {column.paper: column.label for column in target.columns(of_paper)}
