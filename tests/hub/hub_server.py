"""A server on the loopback that speaks as much of the Hugging Face hub's API as its own clients ask for, faults included."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Repository:
    """Files at one commit.

    `gated`: needs a token. `lies`: bytes differ from their digest. `drops`: so many answers of a file end halfway.
    """

    commit: str
    files: Mapping[str, bytes]
    gated: bool = False
    lies: bool = False
    drops: dict[str, int] = field(default_factory=dict)


class Hub(ThreadingHTTPServer):
    """Repositories by kind ("models" or "datasets") and name; `asked` holds every request's method and path."""

    daemon_threads = True

    def __init__(self, repositories: dict[tuple[str, str], Repository]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


_API = re.compile(
    r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info|preupload|commit)/([^/]+)/?(.*))?$"
)
_FILE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)$")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(f"{self.command} {path}")
        if path == "/api/validate-yaml":
            self._json({"warnings": [], "errors": []})
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif found := _API.match(path):
            kind, name, what, revision, inner = found.groups()
            if repository := self._repository(kind, name, revision):
                self._api(repository, kind, name, what or "revision", inner or "", body)
        elif found := _FILE.match(path):
            if repository := self._repository("datasets" if found[1] else "models", found[2], found[3]):
                self._file(repository, found[4])
        else:
            self._json({"error": "not found"}, 404)

    def _repository(self, kind: str, name: str, revision: str | None) -> Repository | None:
        repository = self.server.repositories.get((kind, name))
        if repository is None:
            return self._refuse("RepoNotFound", "Repository not found", 404)
        if revision not in (None, "main", repository.commit):
            return self._refuse("RevisionNotFound", f"Invalid rev id: {revision}", 404)
        if repository.gated and not self.headers.get("Authorization"):
            return self._refuse("GatedRepo", f"Access to {name} is restricted. You must have access to it.", 401)
        return repository

    def _refuse(self, code: str, message: str, status: int) -> None:
        self._json({"error": message}, status, {"X-Error-Code": code, "X-Error-Message": message})

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if not self.headers.get("Authorization"):
            return self._refuse("Unauthorized", "Invalid username or password.", 401)
        made = Repository("c" * 40, {}, gated=asked.get("visibility") == "private")
        self.server.repositories.setdefault((f"{asked.get('type', 'model')}s", name), made)
        return self._json({"url": f"{self.server.url}/{name}", "id": name})

    def _commit(self, repository: Repository, place: str, body: bytes) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        files = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
        repository.files = {**repository.files, **{path: base64.b64decode(text) for path, text in files.items()}}
        url = f"{self.server.url}/{place}/commit/{repository.commit}"
        self._json({"commitUrl": url, "commitOid": repository.commit})

    def _api(self, repository: Repository, kind: str, name: str, what: str, inner: str, body: bytes) -> None:
        if what == "revision":
            siblings = [{"rfilename": path} for path in repository.files]
            self._json({"id": name, "sha": repository.commit, "siblings": siblings, "private": False, "tags": []})
        elif what == "preupload":
            mode = {"uploadMode": "regular", "shouldIgnore": False}
            self._json({"files": [{"path": one["path"], **mode} for one in json.loads(body)["files"]]})
        elif what == "commit":
            self._commit(repository, name if kind == "models" else f"{kind}/{name}", body)
        elif what == "paths-info":
            wanted = json.loads(body)["paths"] if body.startswith(b"{") else []
            self._json([entry for entry in _tree(repository, "", True) if entry["path"] in wanted])
        elif inner and not any(path.startswith(f"{inner}/") for path in repository.files):
            self._refuse("EntryNotFound", f"{inner} does not exist", 404)
        else:
            self._json(_tree(repository, inner, "recursive=true" in self.path.lower()))

    def _file(self, repository: Repository, path: str) -> None:
        content = repository.files.get(path)
        if content is None:
            return self._refuse("EntryNotFound", f"{path} does not exist", 404)
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": repository.commit}
        headers |= {"Accept-Ranges": "bytes", "X-Linked-Size": str(len(content))}
        first, status, size = 0, 200, len(content)
        if ranged := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(ranged[1]), min(int(ranged[2] or size - 1), size - 1)
            headers["Content-Range"], status = f"bytes {first}-{last}/{size}", 206
            content = content[first : last + 1]
        if self.command == "HEAD":
            return self._send(b"", status, headers, length=len(content))
        if repository.lies:
            content = content[: len(content) // 2]  # as a file does that was changed under its own commit
            return self._send(content, status, headers)
        if repository.drops.get(path):
            repository.drops[path] -= 1
            self._send(content[: len(content) // 2], status, headers, length=len(content))
            self.close_connection = True
            return None
        return self._send(content, status, headers)

    def _json(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self._send(json.dumps(content).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, content: bytes, status: int, headers: Mapping[str, str], length: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _tree(repository: Repository, inner: str, recursive: bool) -> list[dict[str, Any]]:
    """Entries below a folder as the API lists them: files, and folders with them."""
    prefix = f"{inner}/" if inner else ""
    entries: dict[str, dict[str, Any]] = {}
    for path, content in repository.files.items():
        if not path.startswith(prefix):
            continue
        parents = [
            str(parent)
            for parent in PurePosixPath(path).parents
            if str(parent).startswith(prefix) and str(parent) != "."
        ]
        shown = [*reversed(parents), path] if recursive else [(*reversed(parents), path)[0]]
        for entry in shown:
            if entry == path:
                digest = hashlib.sha256(content).hexdigest()
                entries[entry] = {"type": "file", "path": entry, "size": len(content), "oid": digest}
            else:
                entries[entry] = {"type": "directory", "path": entry, "size": 0, "oid": "0" * 40}
    return list(entries.values())
