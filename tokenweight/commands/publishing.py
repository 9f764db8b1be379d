"""The command `tokenweight publish`: a model with its card and results, or a scored data set, as the Hub takes them."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from tokenweight.commands.command import command, note
from tokenweight.context.checkpoint_files import copy_tokenizer, copy_weights
from tokenweight.errors import UserError, choose
from tokenweight.files import check_new, new_directory, replace_file
from tokenweight.pipeline.manifest import Manifest, RowEntry, kept_manifests, manifest_path, read_manifest
from tokenweight.pipeline.store import Store, existing_store, files_fault, read_record, removed_weights
from tokenweight.planning.graph import Planner
from tokenweight.recipes.options import STORE
from tokenweight.recipes.recipe import seeded
from tokenweight.recipes.schema import SCALES

_ALSO = ("config.json", "generation_config.json", "*.jinja", "LICENSE*", "USE_POLICY*", "NOTICE*")
_NO_MODEL = "is not a model; name a row, or a directory with a checkpoint"
Shown = list[tuple[Manifest, RowEntry]]
# The Hub's names of licenses that SPDX does not have.
_LICENSES = (
    "apple-amlr apple-ascl bigcode-openrail-m bigscience-bloom-rail-1.0 bigscience-openrail-m bsd c-uda cc "
    "creativeml-openrail-m deepfloyd-if-license fair-noncommercial-research-license gemma gfdl gpl grok2-community "
    "h-research intel-research lgpl lgpl-lr llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 odbl openmdw-1.0 "
    "openmdw-1.1 openrail openrail++ other pddl unknown"
)


@command
def publish(
    what: str,
    /,
    *,
    out: Path | None = None,
    to: str | None = None,
    private: bool = False,
    license: str | None = None,
    scale: str = "smoke",
    store: Path = STORE,
) -> None:
    if to:
        _check_login(to)
    given = Path(what).expanduser()
    if (given / "data").is_dir() and (given / "README.md").is_file():
        if not to or out or license:
            raise UserError(
                f"{what}: is a data set with its card; give --to OWNER/NAME and neither --out nor --license"
            )
        _upload(given, to, "dataset", private)
        return
    if out is None:
        raise UserError("--out: is missing; give the directory that the model and its card are written to")
    target, place = check_new("--out", out), existing_store(store)
    scales = dict.fromkeys((*SCALES, *(kept.scale for kept in kept_manifests(place.root))))  # an experiment's own
    if scale not in scales:
        raise UserError(f"scale {scale!r}: unknown{choose(scale, scales)}")
    model_dir, record, shown = _checkpoint(given, place) if given.is_dir() else _row(what, scale, place)
    from tokenweight.reports.cards import RESULTS_FOLDER, card, hub_results, model_tables

    tables = model_tables(shown, place.root)
    if not tables:
        raise UserError(f"{what}: the store has no result of it; run its experiment, or `tokenweight evaluate`")
    inside, first = model_dir.is_relative_to(place.root), shown[0][1]
    name = to or (seeded(first.row, first.seed) if inside else model_dir.name)
    results = hub_results(tables, place.root, _url(to) if to else None)
    with new_directory("--out", target) as partial:
        copy_weights(model_dir, partial)
        copy_tokenizer(model_dir, partial)
        for file in (file for pattern in _ALSO for file in model_dir.glob(pattern)):
            shutil.copyfile(file, partial / file.name)
        replace_file(partial / "README.md", card(name, tables, record, license))
        for file_name, text in results.items():
            (partial / RESULTS_FOLDER).mkdir(exist_ok=True)
            replace_file(partial / RESULTS_FOLDER / file_name, text)
    print(out)
    if license is None:
        note("README.md names no license: give --license, or add it")
    elif not _is_license(license):
        note(
            f"--license {license}: is not known as an identifier of SPDX in small letters, nor as one of the Hub's own; check it"
        )
    if to:
        _upload(target, to, "model", private)


# --- what is published


def _row(text: str, scale: str, place: Store) -> tuple[Path, dict[str, Any] | None, Shown]:
    """The model that a row of a table trained: EXPERIMENT/ROW, or EXPERIMENT/ROW/seed-N."""
    experiment, _, row = text.removesuffix("/seed-0").partition("/")
    if experiment in ("", ".", "..", "~"):
        raise UserError(f"{text}: is not a directory; correct the path, or name a row, TABLE/ROW")
    path = manifest_path(place.root, experiment, scale)
    if not path.is_file():
        names = sorted(one.stem.removesuffix(f"-{scale}") for one in path.parent.glob(f"*-{scale}.json"))
        has = choose(experiment, names) if names else "; reproduce one"
        raise UserError(f"{text}: is not a directory, and the store has no {experiment} at scale {scale}{has}")
    manifest = read_manifest(path)
    entries = {seeded(entry.row, entry.seed): entry for entry in manifest.rows}
    if row not in entries:
        what = f"{experiment} has no such row" if row else "names no row, TABLE/ROW"
        raise UserError(f"{text}: {what}{choose(row, entries)}")
    entry = entries[row]
    if entry.train is None:
        raise UserError(f"{text}: is a base that was not trained here; publish a row that was, or the base's directory")
    model_dir, record, measured = _checkpoint(place.root / entry.train.address, place, text)
    own = manifest, entry
    return model_dir, record, [own, *(one for one in measured if one != own)]


def _checkpoint(directory: Path, place: Store, text: str = "") -> tuple[Path, dict[str, Any] | None, Shown]:
    """A directory with a model, one of the store's or another, and the rows of tables that measured it, its training first."""
    from tokenweight.evaluation.model_spec import find

    root, record, fingerprints = directory.resolve(), None, set[str]()
    if root.is_relative_to(place.root):
        artifact = root if root.parent.parent == place.root else root.parent
        if artifact.parent.parent != place.root:
            raise UserError(f"{directory}: {_NO_MODEL}")
        root, record = _sound(artifact, text or str(directory))
        fingerprints.add(record["fingerprint"])
        record = record if record["stage"] == "train" else None  # a base, extended
    fingerprints.add(Planner(place).model(find(str(root)).base).fingerprint)  # as `evaluate --model DIRECTORY` knows it
    return root, record, sorted(_measured(fingerprints, place.root), key=lambda one: one[1].train is None)


def _made_anew(artifact: Path) -> str:
    """What to do: a run makes a model only for what lacks its evaluations."""
    evaluations = artifact.parent.parent / "evaluate" / f"{artifact.name[:-9]}--*"
    return f"remove {evaluations} and run its experiment again"


def _sound(artifact: Path, text: str) -> tuple[Path, dict[str, Any]]:
    record = read_record(artifact)
    if fault := files_fault(artifact, record, digests=True):
        raise UserError(f"{text}: {artifact.name} is damaged ({fault}); {_made_anew(artifact)}")
    if record is None or not (artifact / "model").is_dir():
        raise UserError(f"{text}: {_NO_MODEL}")
    if removed_weights(artifact):
        raise UserError(f"{text}: the weights of {artifact.name} were removed from the store; {_made_anew(artifact)}")
    return artifact / "model", record


def _measured(fingerprints: set[str], store_root: Path) -> Iterator[tuple[Manifest, RowEntry]]:
    for manifest in kept_manifests(store_root):
        for entry in manifest.rows:
            records = (read_record(store_root / unit.address) for unit in entry.units)  # some may have failed
            record = next(filter(None, records), None)
            if record and record["inputs"].get("checkpoint") in fingerprints:
                yield manifest, entry


# --- the Hub


def _is_license(text: str) -> bool:
    with suppress(InvalidLicenseExpression):
        return text in _LICENSES.split() or (" " not in text and canonicalize_license_expression(text).lower() == text)
    return False


def _url(repo_id: str) -> str:
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{repo_id}"


def _check_login(repo_id: str) -> None:
    """UserError, before anything is written, for what is no name of a repository, or without a login."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"--to {repo_id}: {error}; write OWNER/NAME") from None
    if repo_id.count("/") != 1:
        raise UserError(f"--to {repo_id}: names no owner; write OWNER/NAME")
    if get_token() is None:
        raise UserError(f"--to {repo_id}: needs a login; run `hf auth login`, or leave --to out")


def _upload(directory: Path, repo_id: str, kind: str, private: bool) -> None:
    """Upload a directory into a repository, which is made where it is not there."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        api.create_repo(repo_id, repo_type=kind, private=private or None, exist_ok=True)
        api.upload_folder(repo_id=repo_id, repo_type=kind, folder_path=directory)
    except Exception as error:  # the hub's client raises many kinds; all mean that it is not there
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        again = f"hf upload {repo_id} {directory} --repo-type {kind}"
        raise UserError(f"--to {repo_id}: could not be uploaded ({reason}); `{again}` tries again") from None
    print(_url(repo_id if kind == "model" else f"datasets/{repo_id}"))
