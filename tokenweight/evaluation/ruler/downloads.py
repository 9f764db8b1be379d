"""RULER's sources from where they are published, each checked by its SHA-256.

Of the collected essays none is published (published.yaml): the first copy's is kept in a lock file beside it.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from rich.console import Console
from rich.progress import track

from tokenweight.errors import UserError
from tokenweight.evaluation.data import table
from tokenweight.files import replace_file, writing
from tokenweight.pipeline.digests import file_sha256

SourceName = Literal["squad", "hotpotqa", "essays"]
NAMES: tuple[SourceName, ...] = get_args(SourceName)
DIRECTORY = Path("data/ruler")  # where scale `paper` looks
LOCK_FILE = "digests.json"
RETRIES = 2  # after a failure; pages of the essays now and then answer 500
TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Published:
    """A file; the addresses are tried in order, the publisher's first. Of the essays they give the list of pages."""

    file: str
    urls: Sequence[str]
    sha256: str | None = None


PUBLISHED: dict[SourceName, Published] = {name: Published(**of) for name, of in table("ruler/published").items()}


def source_file(name: SourceName, directory: Path = DIRECTORY) -> Path:
    return directory / PUBLISHED[name].file


def check_packages() -> None:
    """UserError unless what fetching needs is installed."""
    missing = [name for name in ("pooch", "bs4", "html2text") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"data fetch: package {missing[0]} is missing; pip install -e '.[data]' in the project's directory"
        )


def fetch(name: SourceName, directory: Path, say: Callable[[str], None]) -> None:
    """Fetch a source into `directory`, or check what is there. UserError: no network, another digest, not writable."""
    known, target, lock = PUBLISHED[name], source_file(name, directory), directory / LOCK_FILE
    try:
        locked = json.loads(lock.read_text("utf-8")) if lock.exists() else {}
    except ValueError:
        raise UserError(f"{lock}: is not JSON; remove it") from None
    expected = known.sha256 or locked.get(target.name, {}).get("sha256")
    by = "as published" if known.sha256 else f"as recorded in {lock}"
    there = target.exists()
    origin = "a copy that was there" if there else _make(known, target, expected)
    sha256, size = file_sha256(target), target.stat().st_size
    if there and expected and sha256 != expected:
        raise UserError(
            f"{target}: its SHA-256 is {sha256[:12]}, not {expected[:12]} {by}; remove it to fetch it again"
        )
    if not expected:
        entry = {"sha256": sha256, "bytes": size, "from": origin, "on": f"{datetime.now(UTC):%Y-%m-%d}"}
        replace_file(lock, json.dumps(locked | {target.name: entry}, indent=1) + "\n")
        by = f"(no digest of it is published) is recorded in {lock}, and checked from now on"
    say(f"{name}: {target} {'is there' if there else f'{size / 1e6:.1f} MB from {origin}'}, SHA-256 {by}")


def _make(known: Published, target: Path, expected: str | None) -> str:
    """Fetch a file into a directory on the same disk that is gone afterwards, then move it; returns where it is from."""
    existing = next(parent for parent in target.absolute().parents if parent.exists())
    where = f"--to {target.parent}"
    with writing(where, "another"), tempfile.TemporaryDirectory(prefix=".fetching-", dir=existing) as place:
        made = Path(place) / target.name
        origin = download(known.urls, made, known.sha256)
        if not known.sha256:
            made.write_text(json.dumps({"text": collect_essays(made.read_text("utf-8"), Path(place))}))
            if expected and file_sha256(made) != expected:
                accept = f"copy the earlier {target.name} here, or remove {target.with_name(LOCK_FILE)} to accept this"
                raise UserError(f"essays: the pages differ from those recorded; {accept}")
        target.parent.mkdir(parents=True, exist_ok=True)
        made.replace(target)
    return origin


def download(urls: Sequence[str], path: Path, sha256: str | None = None) -> str:
    """Fetch the first of some addresses that gives a file (of that digest) into `path`, and return it; else UserError."""
    import pooch
    from requests import RequestException

    pooch.get_logger().setLevel("ERROR")
    by_http = pooch.HTTPDownloader(timeout=TIMEOUT_SECONDS, progressbar=sys.stderr.isatty() and sha256 is not None)
    failures = []
    for url in urls:
        file = pooch.create(
            path.parent, "", registry={path.name: sha256}, urls={path.name: url}, retry_if_failed=RETRIES
        )
        try:
            file.fetch(path.name, downloader=by_http)
        except RequestException as error:
            status = None if error.response is None else error.response.status_code
            failures.append(f"{url} ({f'HTTP {status}' if status else type(error).__name__})")
        except ValueError:  # pooch's word for another digest
            failures.append(f"{url} (not the bytes of SHA-256 {(sha256 or '')[:12]})")
        else:
            return url
    raise UserError(f"could not be fetched from {' or '.join(failures)}; go online, or copy the file here")


def collect_essays(addresses: str, directory: Path) -> str:
    """The haystack of essays, by the rules of RULER's own script (download_paulgraham_essay.py): text files, then the first
    `font` element of web pages as Markdown. UserError: a page, which the script would leave out, cannot be had or read."""
    import html2text
    from bs4 import BeautifulSoup

    writer = html2text.HTML2Text()
    writer.ignore_images = writer.ignore_tables = True
    writer.mark_code = False
    essays: dict[tuple[bool, str], str] = {}
    for number, url in enumerate(track(addresses.split(), "essays", console=Console(stderr=True))):
        file, is_page = directory / f"{number}.raw", ".html" in url
        download((url,), file)
        try:
            text = file.read_bytes().decode("unicode_escape" if is_page else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{url}: cannot be read ({error.reason}); give a haystack of your own") from None
        if is_page:
            text = writer.handle(str(BeautifulSoup(text, "html.parser").find("font")))
        # The script writes each essay to a file and reads it as text: all line ends become one kind.
        name = url.rpartition("/")[2].replace(".html", ".txt")
        essays[is_page, name] = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(essays[key] for key in sorted(essays))
