"""RULER's sources from where they are published, each checked by its SHA-256.

SQuAD and HotpotQA have digests that others have published: of SQuAD `tensorflow_datasets` (question_answering/squad/
checksums.tsv) and ParlAI (tasks/squad2/build.py), of HotpotQA the `datasets` library (datasets/hotpot_qa/
dataset_infos.json) and ParlAI (tasks/hotpotqa/build.py). Of the collected essays there is none: the first copy's is kept
in a lock file beside it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from tokenweight.errors import UserError
from tokenweight.pipeline.digests import file_sha256
from tokenweight.pipeline.store import write_json

SourceName = Literal["squad", "hotpotqa", "essays"]
NAMES: tuple[SourceName, ...] = get_args(SourceName)
DIRECTORY = Path("data/ruler")  # where scale `paper` looks
ESSAYS_FILE = "PaulGrahamEssays.json"
LOCK_FILE = "digests.json"
RETRIES = 2  # after a failure; pages of the essays now and then answer 500
TIMEOUT_SECONDS = 60

Say = Callable[[str], None]


@dataclass(frozen=True)
class Published:
    """A file whose SHA-256 is known; the addresses are tried in order, the publisher's first."""

    file: str
    urls: tuple[str, ...]
    sha256: str


PUBLISHED: dict[str, Published] = {
    "squad": Published(
        "squad.json",
        ("https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v2.0.json",),
        "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
    ),
    "hotpotqa": Published(
        "hotpotqa.json",
        (
            "http://curtis.ml.cmu.edu/datasets/hotpot/hotpot_dev_distractor_v1.json",
            "https://huggingface.co/datasets/RAGLAB/data/resolve/c33b09b7fa5099b89830e84f9bdff78329268d9b/"
            "eval_datasets/HotPotQA/hotpot_dev_distractor_v1.json",  # the same bytes, where that server is silent
        ),
        "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea",
    ),
}


def source_file(name: SourceName, directory: Path = DIRECTORY) -> Path:
    """Where a source is, or will be."""
    return directory / (ESSAYS_FILE if name == "essays" else PUBLISHED[name].file)


def check_packages() -> None:
    """UserError unless what fetching needs is installed."""
    missing = [name for name in ("pooch", "bs4", "html2text") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"data fetch: package {missing[0]} is missing; pip install -e '.[data]' in the project's directory (make install does)"
        )


def fetch(name: SourceName, directory: Path, say: Say) -> None:
    """Fetch a source into `directory` unless it is there; what is there is checked. What was cut leaves no file behind.

    Raises:
        UserError: no network, a digest that is not the expected one, or a directory that cannot be written.
    """
    target = source_file(name, directory)
    if name != "essays":
        known = PUBLISHED[name]
        if target.exists():
            _check(target, known.sha256, "published")
            say(f"{name}: {target} is there, SHA-256 as published")
            return
        with _beside(directory) as place:
            url = download(known.urls, place / known.file, known.sha256)
            _move(place / known.file, target)
        say(f"{name}: {target}, {_megabytes(target)} from {url}, SHA-256 as published")
        return
    _fetch_essays(target, directory / LOCK_FILE, say)


def _fetch_essays(target: Path, lock: Path, say: Say) -> None:
    from tokenweight.evaluation.ruler.essays import LIST_URL, collect

    expected = _locked(lock).get(target.name, {}).get("sha256")
    if target.exists():
        if expected:
            _check(target, expected, f"recorded in {lock}")
            say(f"essays: {target} is there, SHA-256 as recorded in {lock}")
            return
        found, origin = file_sha256(target), "a copy that was there"
    else:
        with _beside(target.parent) as place:
            made = place / target.name
            made.write_text(json.dumps({"text": collect(place)}))
            found, origin = file_sha256(made), LIST_URL
            if expected not in (None, found):
                raise UserError(
                    f"essays: what the pages give now has SHA-256 {found[:12]}, {lock} says {expected[:12]}: they have "
                    f"changed; copy the earlier {target.name} here, or remove {lock} to accept the new one"
                )
            _move(made, target)
    if not expected:
        entry = {"sha256": found, "bytes": target.stat().st_size, "from": origin, "on": f"{datetime.now(UTC):%Y-%m-%d}"}
        write_json(lock, _locked(lock) | {target.name: entry})
    say(
        f"essays: {target}, {_megabytes(target)}; no digest of it is published: {found[:12]} is recorded in {lock}, and "
        "checked from now on"
    )


def download(urls: Sequence[str], path: Path, sha256: str | None = None) -> str:
    """Fetch the first of some addresses that answers, with retries, into `path`; returns that address.

    Raises:
        UserError: none answers, or gives a file of that digest.
    """
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("ERROR")
    failures = []
    for url in urls:
        keeper = pooch.create(
            path.parent, base_url="", registry={path.name: sha256}, urls={path.name: url}, retry_if_failed=RETRIES
        )
        bar = sys.stderr.isatty() and sha256 is not None
        try:
            keeper.fetch(path.name, downloader=pooch.HTTPDownloader(timeout=TIMEOUT_SECONDS, progressbar=bar))
        except RequestException as error:
            status = error.response.status_code if error.response is not None else None
            failures.append(f"{url} ({f'HTTP {status}' if status else type(error).__name__})")
        except ValueError:  # pooch's word for another digest
            failures.append(f"{url} (not the bytes of SHA-256 {(sha256 or '')[:12]})")
        else:
            return url
    raise UserError(f"could not be fetched from {' or '.join(failures)}; go online, or bring the file from elsewhere")


def _check(file: Path, sha256: str, source: str) -> None:
    found = file_sha256(file)
    if found != sha256:
        raise UserError(
            f"{file}: its SHA-256 is {found[:12]}, not the {sha256[:12]} {source}; remove it to fetch it again"
        )


@contextmanager
def _beside(directory: Path) -> Iterator[Path]:
    """A directory for what is on its way, on the same disk; gone afterwards, whatever happens."""
    parents = (directory, *directory.absolute().parents)
    existing = next(parent for parent in parents if parent.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=existing) as place:
            yield Path(place)
    except OSError as error:
        raise UserError(f"--to {directory}: cannot be written ({error.strerror}); choose another") from None


def _move(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    file.replace(target)


def _locked(lock: Path) -> dict[str, dict[str, str]]:
    try:
        content = json.loads(lock.read_text()) if lock.exists() else {}
    except ValueError:
        raise UserError(f"{lock}: is not JSON; remove it") from None
    return dict(content)


def _megabytes(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.1f} MB"
