"""`tokenweight data fetch` against a server on this machine: digests, mirrors, cut downloads, the essays' lock file."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tokenweight.errors import UserError
from tokenweight.evaluation.ruler import downloads
from tokenweight.evaluation.ruler.downloads import PUBLISHED, fetch
from tokenweight.evaluation.ruler.tasks import haystack_words
from tokenweight.recipes import load

for package in ("pooch", "bs4", "html2text"):
    pytest.importorskip(package, reason=f"NOT CHECKED: {package} is missing (extra `data`)")

SQUAD = b'{"data": []}'
PAGE = "<html><font>First</font><p>skipped</p></html>"
REAL_PAGE = "<html><body><font size=2>Caf\xe9.<br><br><b>Bold</b> <a href=x.html>link</a> 1. a_b</font></body></html>"


class Web:
    """What the server gives: by path the body, or a number of bytes to promise beyond it, or a status."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.bodies: dict[str, bytes] = {}
        self.promised_more: dict[str, int] = {}
        self.failures: dict[str, int] = {}  # how often 500 is answered first
        self.asked: list[str] = []


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            body = found.bodies.get(self.path)
            failing = found.failures.get(self.path, 0)
            if body is None or failing:
                found.failures[self.path] = failing - 1
                self.send_error(404 if body is None else 500)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) + found.promised_more.get(self.path, 0)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Web(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(downloads, "RETRIES", 0)
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def squad(web: Web, monkeypatch: pytest.MonkeyPatch) -> Web:
    """SQuAD at the server, behind an address that does not answer."""
    known = replace(
        PUBLISHED["squad"],
        urls=(web.address + "/gone.json", web.address + "/squad.json"),
        sha256=hashlib.sha256(SQUAD).hexdigest(),
    )
    monkeypatch.setitem(PUBLISHED, "squad", known)
    web.bodies["/squad.json"] = SQUAD
    return web


@pytest.fixture
def pages(web: Web, monkeypatch: pytest.MonkeyPatch) -> Web:
    """Three essays: two pages and a text."""
    listed = replace(PUBLISHED["essays"], urls=(web.address + "/list.txt",))
    monkeypatch.setitem(PUBLISHED, "essays", listed)
    paths = ("/b.html", "/a.html", "/z.txt")
    web.bodies |= {
        "/list.txt": "".join(f"{web.address}{path}\n" for path in paths).encode(),
        "/b.html": PAGE.encode(),
        "/a.html": REAL_PAGE.encode("latin-1"),
        "/z.txt": "Plain text, é,\r\ntwo lines.".encode(),
    }
    return web


@pytest.fixture
def told() -> list[str]:
    return []


def test_a_file_comes_from_the_first_address_that_has_it(squad: Web, tmp_path: Path, told: list[str]) -> None:
    fetch("squad", tmp_path / "data/ruler", told.append)
    assert (tmp_path / "data/ruler/squad.json").read_bytes() == SQUAD
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["squad.json"]
    assert told[0].endswith(f"MB from {squad.address}/squad.json, SHA-256 as published")
    fetch("squad", tmp_path / "data/ruler", told.append)
    assert told[1].endswith("is there, SHA-256 as published")
    assert squad.asked == ["/gone.json", "/squad.json"]


def test_other_bytes_are_refused_and_leave_nothing(squad: Web, tmp_path: Path, told: list[str]) -> None:
    squad.bodies["/squad.json"] = SQUAD + b" "
    with pytest.raises(UserError, match=r"gone.json \(HTTP 404\) or .*squad.json \(not the bytes of SHA-256"):
        fetch("squad", tmp_path / "data/ruler", told.append)
    squad.bodies["/squad.json"] = SQUAD[:-3]
    squad.promised_more["/squad.json"] = 3
    with pytest.raises(UserError, match=r"squad.json \(ChunkedEncodingError\)"):
        fetch("squad", tmp_path / "data/ruler", told.append)
    assert list(tmp_path.iterdir()) == []


def test_a_changed_file_is_never_overwritten(squad: Web, tmp_path: Path, told: list[str]) -> None:
    (tmp_path / "squad.json").write_text("my own")
    with pytest.raises(UserError, match=r"squad.json: its SHA-256 is .* remove it to fetch it again"):
        fetch("squad", tmp_path, told.append)
    assert (tmp_path / "squad.json").read_text() == "my own"
    assert squad.asked == []


def test_a_server_that_fails_once_is_asked_again(
    squad: Web, tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "RETRIES", 1)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    squad.failures["/squad.json"] = 1
    fetch("squad", tmp_path, told.append)
    assert squad.asked[-2:] == ["/squad.json", "/squad.json"]


def test_essays_are_joined_as_the_official_script_joins_them(pages: Web, tmp_path: Path, told: list[str]) -> None:
    fetch("essays", tmp_path, told.append)
    file, lock = tmp_path / "PaulGrahamEssays.json", tmp_path / "digests.json"
    assert sorted(tmp_path.iterdir()) == sorted([file, lock])
    # Texts first, then pages by name.
    expected = "Plain text, é,\ntwo lines." + "Café.  \n  \n**Bold** [link](x.html) 1\\. a_b\n\n" + "First\n\n"
    assert json.loads(file.read_text()) == {"text": expected}
    assert file.read_bytes().isascii()  # as json.dump writes it
    assert haystack_words(file)[:3] == ("Plain", "text,", "é,")
    entry = json.loads(lock.read_text())["PaulGrahamEssays.json"]
    assert entry["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (entry["bytes"], entry["from"]) == (file.stat().st_size, pages.address + "/list.txt")
    assert "no digest of it is published" in told[0]
    assert f"is recorded in {lock}" in told[0]


def test_essays_are_checked_against_the_first_copy(pages: Web, tmp_path: Path, told: list[str]) -> None:
    fetch("essays", tmp_path, told.append)
    file = tmp_path / "PaulGrahamEssays.json"
    whole, asked = file.read_bytes(), len(pages.asked)
    fetch("essays", tmp_path, told.append)
    assert told[1].endswith(f"SHA-256 as recorded in {tmp_path / 'digests.json'}")
    assert len(pages.asked) == asked
    file.write_bytes(whole + b" ")
    with pytest.raises(UserError, match=r"recorded in .*digests.json; remove it to fetch it again"):
        fetch("essays", tmp_path, told.append)
    file.unlink()
    pages.bodies["/z.txt"] = b"Another text."
    with pytest.raises(UserError, match="the pages differ from those recorded; copy the earlier"):
        fetch("essays", tmp_path, told.append)
    assert [p.name for p in tmp_path.iterdir()] == ["digests.json"]
    pages.bodies["/z.txt"] = "Plain text, é,\r\ntwo lines.".encode()
    fetch("essays", tmp_path, told.append)
    assert file.read_bytes() == whole


def test_a_haystack_with_a_hole_is_not_made(pages: Web, tmp_path: Path, told: list[str]) -> None:
    del pages.bodies["/a.html"]
    with pytest.raises(UserError, match=r"a.html \(HTTP 404\)"):
        fetch("essays", tmp_path / "data", told.append)
    assert list(tmp_path.iterdir()) == []


def test_ones_own_copy_of_the_essays_is_recorded(tmp_path: Path, told: list[str]) -> None:
    (tmp_path / "PaulGrahamEssays.json").write_text('{"text": "mine"}')
    fetch("essays", tmp_path, told.append)
    assert (
        json.loads((tmp_path / "digests.json").read_text())["PaulGrahamEssays.json"]["from"] == "a copy that was there"
    )


# --- The command -------------------------------------------------------------------------------

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, run_command: Run) -> Run:
    """Runs `tokenweight data fetch` in an empty directory."""
    return partial(run_command, tmp_path, "data", "fetch")


def test_offline_is_one_line_and_leaves_nothing(
    squad: Web, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = "http://127.0.0.1:9"
    for name in downloads.NAMES:
        monkeypatch.setitem(PUBLISHED, name, replace(PUBLISHED[name], urls=(f"{nobody}/{name}",)))
    code, out, err = run()
    assert (code, out, err.count("\n")) == (2, "", 1)
    for name in ("squad", "hotpotqa", "essays"):
        assert f"{name}: could not be fetched from {nobody}/" in err
    assert list(tmp_path.iterdir()) == []


def test_scale_paper_finds_what_was_fetched(squad: Web, pages: Web, run: Run, tmp_path: Path) -> None:
    assert run("squad")[0] == 0
    assert run("essays")[0] == 0
    ruler = load("table-3/uniform", "paper").evaluation.ruler
    assert ruler.squad is not None
    assert ruler.haystack is not None
    assert Path(ruler.squad).read_bytes() == SQUAD
    assert haystack_words(Path(ruler.haystack))[0] == "Plain"
    code, _, err = run("squad", "--to", "data/ruler/squad.json")
    assert (code, err.count("\n")) == (2, 1)
    assert "--to data/ruler/squad.json: " in err


def test_a_missing_package_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "find_spec", lambda name: None)
    code, _, err = run()
    assert (code, err.count("\n")) == (2, 1)
    assert "package pooch is missing; pip install -e '.[data]'" in err
