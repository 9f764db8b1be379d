"""The commands `tokenweight store ls`, `verify`, `pack` and `gc`."""

from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field
from rich.filesize import decimal

from tokenweight.commands.command import command, print_json
from tokenweight.errors import StageError, UserError, choose
from tokenweight.pipeline.archive import write_records
from tokenweight.pipeline.inventory import Entry, garbage, inventory, remove, unneeded, used_by
from tokenweight.pipeline.inventory import weights as weights_of
from tokenweight.pipeline.locks import exclusive_lock
from tokenweight.pipeline.store import Kind, Store, existing_store
from tokenweight.planning.plan import to_make
from tokenweight.progress import counted
from tokenweight.recipes.inputs import Inputs
from tokenweight.recipes.options import STORE
from tokenweight.tasks.experiments import plan_texts


@command
def ls(
    *,
    store: Path = STORE,
    stage: str | None = None,
    state: str | None = None,
    target: str | None = None,
    scale: str = "smoke",
    as_json: bool = False,
) -> None:
    place = existing_store(store)
    entries = inventory(place.root)
    chosen, users = _filtered(entries, stage, state), used_by(entries)
    if target is not None:
        needed, _ = _needs(place, [target], scale, Inputs())
        chosen = [entry for entry in chosen if entry.fingerprint in needed]
    shown = [_row(entry) | {"used_by": users[entry.fingerprint]} for entry in chosen]
    if as_json:
        print_json(shown)
        return
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in shown:  # one line for all complete evaluations of a model, and for all prepared prompts of a benchmark
        separator = {"evaluate": "--", "prepare": "-"}.get(row["stage"]) if not (stage or state) else None
        alike = separator is not None and row["state"] == "complete"
        name = f"{row['name'].partition(separator)[0]}{separator}..." if alike else row["directory"]
        groups.setdefault((row["stage"], name), []).append(row)
    for (of, name), rows in groups.items():
        size, made = decimal(sum(row["bytes"] for row in rows)), max(row["made"] for row in rows)
        count = f" ({len(rows)})" if name.endswith("...") else ""
        state_of = "" if rows[0]["state"] == "complete" else f"  [{rows[0]['state']}]"
        print(f"{size:>10}  {made[:16]}  {of}/{name}{count}{state_of}")
    counts = Counter(row["state"] for row in shown)
    states = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(f"{decimal(sum(row['bytes'] for row in shown))} in {states or '0 artifacts'}")


@command
def verify(*, store: Path = STORE, stage: str | None = None, digests: bool = False, as_json: bool = False) -> None:
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
        print(f"{counted(checked, 'artifact')} checked ({how}): {len(damaged) or 'none'} damaged")
    if damaged:
        raise StageError(
            f"{counted(len(damaged), 'artifact')} damaged: the next run that needs one makes it again; "
            "or put its files back"
        )


@command
def pack(file: Path, /, *, store: Path = STORE) -> None:
    root, place = existing_store(store).root, file.expanduser()
    count = write_records(root, place)
    if not count:
        raise UserError(f"--store {store}: has no finished artifact, so no records; run an experiment first")
    print(f"{place}: records of {counted(count, 'artifact')}, {decimal(place.stat().st_size)}")


@command
def gc(
    *,
    inputs: Inputs,
    store: Path = STORE,
    keep_targets: str | None = None,
    scale: str = "smoke",
    weights: bool = False,
    unfinished: bool = False,
    older_than: Annotated[float | None, Field(ge=0)] = None,
    yes: bool = False,
    as_json: bool = False,
) -> None:
    place = existing_store(store)
    takes_artifacts = keep_targets is not None or weights
    done: list[dict[str, Any]] = []
    with exclusive_lock(place.root) if takes_artifacts and yes else nullcontext():
        named = [name.strip() for name in (keep_targets or "").split(",") if name.strip()]
        if keep_targets is not None and not named:
            raise UserError("--keep-targets: names none; write for example table-3,table-9")
        kept, soon = _needs(place, named, scale, inputs) if named else (set(), set())
        entries = inventory(place.root)
        found = list(garbage(entries, unfinished=unfinished))
        found += unneeded(entries, kept) if keep_targets is not None else []
        found += weights_of(entries, soon) if weights else []
        complete = {one.entry.path: one for one in found if not one.names}  # nothing goes twice
        for one in (*complete.values(), *(one for one in found if one.names and one.entry.path not in complete)):
            if older_than is not None and one.entry.changed >= datetime.now(UTC) - timedelta(days=older_than):
                continue
            removed = yes and remove(place.root, one)
            row = {**_row(one.entry), "bytes": one.bytes, "why": one.why, "removed": removed, "files": list(one.names)}
            done.append(row)
            if not as_json:
                skipped = "" if removed or not yes else "; kept: a run holds it, or it is gone"
                print(f"{decimal(one.bytes):>10}  {row['stage']}/{row['directory']}  {one.why}{skipped}")
    if as_json:
        print_json(done)
        return
    total = decimal(sum(row["bytes"] for row in done if row["removed"] or not yes))
    if yes:
        print(f"{sum(row['removed'] for row in done)} removed, {total}")
    else:
        print(f"{len(done)} would be removed, {total}" + ("; --yes removes them" if done else ""))
    listed = {one.entry.path for one in found}
    if left := [entry.bytes for entry in entries if entry.kind == "partial" and entry.path not in listed]:
        print(
            f"{len(left)} unfinished, {decimal(sum(left))}, kept, so that the next run resumes from them; "
            "--unfinished removes them"
        )


def _needs(place: Store, wanted: list[str], scale: str, inputs: Inputs) -> tuple[set[str], set[str]]:
    """Fingerprints of what experiments need, and of what is soon read."""
    graphs = [planned.graph for planned in plan_texts(wanted, scale, inputs, place)[0]]
    made = [artifact for graph in graphs for artifact in to_make(graph, place)]
    needed = {artifact.fingerprint for graph in graphs for artifact in graph.artifacts}
    return needed, {parent.fingerprint for artifact in made for parent in artifact.parents}


def _filtered(entries: list[Entry], stage: str | None, state: str | None) -> list[Entry]:
    """Of a stage and in a state. UserError for what there is none of."""
    stages, states = {entry.stage for entry in entries}, get_args(Kind)
    if stage is not None and stage not in stages:
        raise UserError(f"--stage {stage}: the store has none of it; it has {', '.join(sorted(stages)) or 'nothing'}")
    if state is not None and state not in states:
        raise UserError(f"--state {state}: unknown{choose(state, states)}")
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
        "fingerprint": entry.fingerprint or None,
    }
