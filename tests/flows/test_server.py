"""Which Prefect server is used, and what is said where none answers."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from tokenweight.embedded import answers
from tokenweight.errors import UserError
from tokenweight.flows import server
from tokenweight.flows.server import chosen_server, use_server

NOBODY = "http://127.0.0.1:9/api"


class Refusing(BaseHTTPRequestHandler):
    """As a server that asks for a password."""

    def do_GET(self) -> None:
        self.send_error(401)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    listening = HTTPServer(("127.0.0.1", 0), Refusing)
    Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}/api"
    listening.shutdown()


def test_a_refusal_is_an_answer(refusing: str) -> None:
    assert answers(refusing)
    assert not answers(NOBODY)
    assert not answers("no address")


def test_a_server_that_does_not_answer_is_named_with_who_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", NOBODY)
    url, source = chosen_server(NOBODY)
    assert (url, source) == (NOBODY, "PREFECT_API_URL")
    monkeypatch.setattr(server, "chosen_server", lambda api_url: (url, source))
    with pytest.raises(UserError, match=rf"{NOBODY} \(PREFECT_API_URL\); start one with `prefect server start`"):
        use_server()


def test_without_a_name_it_is_the_one_of_prefect_server_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    url, source = chosen_server(None)
    assert url.startswith("http://127.0.0.1:")
    assert source.startswith("default")
    assert "profile" in chosen_server("http://team:4200/api")[1]
