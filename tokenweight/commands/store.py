"""The commands `tokenweight store ls`, `verify`, `pack` and `gc`."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field

from tokenweight.commands.command import command
from tokenweight.commands.showing import print_json
from tokenweight.errors import StageError, UserError
from tokenweight.pipeline import Store
from tokenweight.pipeline.archive import write_records
from tokenweight.pipeline.inventory import Entry, Kind, Removal, garbage, inventory, remove, unneeded, used_by
from tokenweight.pipeline.inventory import weights as weights_of
from tokenweight.pipeline.locks import exclusive_lock
from tokenweight.pipeline.store import existing_store
from tokenweight.planning.experiments import Needs
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import STORE, JsonOption, ScaleOption, StoreOption
from tokenweight.tasks.experiments import plan_texts

StageOption = Annotated[str | None, Field(description="Only artifacts of this stage, for example train")]


@command
def ls(
    *,
    store: StoreOption = STORE,
    stage: StageOption = None,
    state: Annotated[
        str | None, Field(description='Only artifacts in this state, for example damaged or "set aside"')
    ] = None,
    target: Annotated[str | None, Field(description="Only what this experiment needs at --scale")] = None,
    scale: ScaleOption = "smoke",
    as_json: JsonOption = False,
) -> None:
    """What the store holds."""
    place = existing_store(store)
    entries = inventory(place.root)
    users, needed = used_by(entries), _needs(place, target, scale, Inputs())
    shown = []
    for entry in _filtered(entries, stage, state):
        made = entry.fingerprint or ""
        row = _row(entry) | {"used_by": len(users.get(made, ())), "targets": needed.experiments.get(made, [])}
        if target is None or row["targets"]:
            shown.append(row | {"recipes": needed.recipes.get(made, [])})
    if as_json:
        print_json(shown)
        return
    for row in shown if stage or state else _summed_up(shown):
        state_of = "" if row["state"] == "complete" else f"  [{row['state']}]"
        line = f"{_size(row['bytes']):>10}  {row['made'][:16]}  {row['stage']}/{row['directory']}{state_of}"
        print(f"{line}  {','.join(row['targets'])}".rstrip())
    counts = Counter(row["state"] for row in shown)
    states = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(f"{_size(sum(row['bytes'] for row in shown))} in {states or 'nothing'}")


@command
def verify(
    *,
    store: StoreOption = STORE,
    stage: StageOption = None,
    digests: Annotated[bool, Field(description="Also read all files and compare their SHA-256")] = False,
    as_json: JsonOption = False,
) -> None:
    """Records and sizes against the files."""
    entries = _filtered(inventory(existing_store(store).root, digests=digests), stage, None)
    damaged = [entry for entry in entries if entry.kind == "damaged"]
    if as_json:
        counts = Counter(entry.kind for entry in entries)
        print_json({"states": counts, "damaged": [_row(entry) for entry in damaged]})
    else:
        for entry in damaged:
            print(f"damaged: {entry.address}: {entry.reason}")
        checked = sum(entry.kind in ("complete", "weights removed", "damaged") for entry in entries)
        how = "records, sizes and contents" if digests else "records and sizes"
        print(f"{checked} artifacts checked ({how}): {len(damaged) or 'none'} damaged")
    if damaged:
        raise StageError(
            f"{len(damaged)} artifacts are damaged: a run that needs one sets it aside and makes it again; "
            "or put its files back"
        )


@command
def pack(
    file: Annotated[
        Path, Field(description="Archive to write, .tar.xz; unpacked into a store, it is enough for tables")
    ],
    /,
    *,
    store: StoreOption = STORE,
) -> None:
    """Records, samples and metrics in one archive."""
    root, place = existing_store(store).root, file.expanduser()
    count = write_records(root, place)
    if not count:
        raise UserError(f"--store {store}: holds nothing that is finished, so no records")
    print(f"{place}: records of {count} artifacts, {_size(place.stat().st_size)}")


@command
def gc(
    *,
    inputs: Inputs,
    store: StoreOption = STORE,
    keep_targets: Annotated[
        str | None,
        Field(description="Also remove artifacts that none of these experiments needs, for example table-3,table-9"),
    ] = None,
    scale: ScaleOption = "smoke",
    weights: Annotated[bool, Field(description="Also remove weights of models that were used; records stay")] = False,
    unfinished: Annotated[
        bool,
        Field(description="Also remove what interrupted runs left; the next run starts these stages anew"),
    ] = False,
    older_than: Annotated[float | None, Field(ge=0, description="Only what is older than this number of days")] = None,
    yes: Annotated[bool, Field(description="Remove what is listed")] = False,
    as_json: JsonOption = False,
) -> None:
    """What could be removed; `--yes` removes it."""
    place = existing_store(store)
    takes_artifacts = keep_targets is not None or weights
    done: list[dict[str, Any]] = []
    with exclusive_lock(place.root) if takes_artifacts and yes else nullcontext():
        for one in _removals(place, keep_targets, scale, inputs, weights, unfinished):
            if older_than is not None and one.entry.changed >= datetime.now(UTC) - timedelta(days=older_than):
                continue
            removed = yes and remove(place.root, one)
            row = {**_row(one.entry), "bytes": one.bytes, "why": one.why, "removed": removed, "files": list(one.names)}
            done.append(row)
            if not as_json:
                skipped = "" if removed or not yes else "; kept: a run holds it, or it is gone"
                print(f"{_size(one.bytes):>10}  {row['stage']}/{row['directory']}  {one.why}{skipped}")
    if as_json:
        print_json(done)
        return
    total = _size(sum(row["bytes"] for row in done if row["removed"] or not yes))
    if yes:
        print(f"{sum(row['removed'] for row in done)} removed, {total}")
    else:
        print(f"{len(done)} would be removed, {total}" + ("; --yes removes them" if done else ""))
    listed = {(row["stage"], row["directory"]) for row in done}
    left = [one for one in inventory(place.root) if one.kind == "partial" and (one.stage, one.path.name) not in listed]
    if left:
        size = _size(sum(entry.bytes for entry in left))
        print(
            f"{len(left)} unfinished, {size}, kept, so that the next run resumes from them; --unfinished removes them"
        )


def _summed_up(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for all complete evaluations of a model, and for all prepared prompts of a benchmark."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        separator = {"evaluate": "--", "prepare": "-"}.get(row["stage"])
        complete = separator is not None and row["state"] == "complete"
        name = f"{row['name'].partition(separator)[0]}{separator}..." if complete else row["directory"]
        groups.setdefault((row["stage"], name), []).append(row)
    return [
        {
            **group[0],
            "directory": f"{name} ({len(group)})" if name.endswith("...") else name,
            "bytes": sum(row["bytes"] for row in group),
            "made": max(row["made"] for row in group),
            "targets": list(dict.fromkeys(target for row in group for target in row["targets"])),
        }
        for (_, name), group in groups.items()
    ]


def _removals(
    place: Store, keep_targets: str | None, scale: str, inputs: Inputs, wanted: bool, unfinished: bool
) -> list[Removal]:
    """Everything that goes, each directory once."""
    kept = Needs() if keep_targets is None else _needs(place, keep_targets, scale, inputs)
    entries = inventory(place.root)
    gone = [] if keep_targets is None else unneeded(entries, kept.experiments)
    taken = {removal.entry.path for removal in gone}
    found = [one for one in garbage(entries, unfinished=unfinished) if one.entry.path not in taken] + gone
    if wanted:
        whole = {removal.entry.path for removal in found if not removal.names}
        found += [removal for removal in weights_of(entries, kept.soon) if removal.entry.path not in whole]
    return found


def _needs(place: Store, names: str | None, scale: str, inputs: Inputs) -> Needs:
    """What experiments need, comma-separated; None: all of the targets. UserError where none is named."""
    from tokenweight.reports.targets import TARGETS

    wanted = list(TARGETS) if names is None else [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise UserError("--keep-targets: names none; write for example table-3,table-9")
    return Needs.of(plan_texts(wanted, scale, inputs, place)[0], place)


def _filtered(entries: list[Entry], stage: str | None, state: str | None) -> list[Entry]:
    """Of a stage and in a state. UserError for what there is none of."""
    stages, states = {entry.stage for entry in entries}, get_args(Kind)
    if stage is not None and stage not in stages:
        raise UserError(f"--stage {stage}: the store has none of it; it has {', '.join(sorted(stages)) or 'nothing'}")
    if state is not None and state not in states:
        raise UserError(f"--state {state}: unknown; choose from {', '.join(states)}")
    return [entry for entry in entries if stage in (None, entry.stage) and state in (None, entry.kind)]


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "stage": entry.stage,
        "name": entry.name,
        "directory": entry.path.name,
        "state": entry.kind,
        "reason": entry.reason,
        "bytes": entry.bytes,
        "made": entry.changed.isoformat(timespec="seconds"),
        "fingerprint": entry.fingerprint,
    }


def _size(count: float) -> str:
    """Bytes for people."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} GiB"
