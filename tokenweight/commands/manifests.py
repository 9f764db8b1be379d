"""What `report` reads: a manifest's file, the store's manifest of the last run, or a plan's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenweight.errors import UserError
from tokenweight.pipeline import Store
from tokenweight.pipeline.manifest import Manifest, manifest_path, read_manifest
from tokenweight.planning.experiments import plan_experiments
from tokenweight.recipes.inputs import Inputs
from tokenweight.reports.targets import ALL
from tokenweight.reports.targets.find import find_experiments, targets_of


def manifests_for(
    texts: Iterable[str], scale: str, inputs: Inputs, seeds: int | None, store: Store, lenient: bool = False
) -> tuple[list[Manifest], list[str]]:
    """The manifest of each experiment, and why some are left out, a line each: of "paper", or where `lenient`.

    The store's own is taken where the user says nothing that could change it: it needs no data, and is what was run.
    Raises UserError for what is no experiment.
    """
    found: list[Manifest] = []
    left_out: list[str] = []
    as_it_was = inputs == Inputs() and seeds is None
    for text, all_of_paper in ((name, lenient or given == ALL) for given in texts for name in targets_of(given)):
        kept = manifest_path(store.root, Path(text).stem if text.endswith((".yaml", ".yml")) else text, scale)
        if text.endswith(".json"):
            found.append(read_manifest(Path(text).expanduser()))
        elif as_it_was and "\n" not in text and kept.is_file():
            found.append(read_manifest(kept))
        else:
            try:
                resolved, _ = find_experiments([text], scale, inputs, seeds)
            except UserError as error:
                if not all_of_paper:
                    raise
                left_out.append(f"{text} is left out: {error}")
                continue
            planned, lacking = plan_experiments(resolved, store, skip_without_text=all_of_paper)
            found += [one.manifest for one in planned]
            left_out += lacking
    return found, left_out
