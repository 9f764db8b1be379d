"""Backend `endpoint`: an optional room. A server that speaks OpenAI's protocol is asked; whether it can be is checked first."""

from __future__ import annotations

import os
from functools import cache
from http import HTTPStatus
from http.client import responses
from importlib.util import find_spec
from typing import Any

import aiohttp
import requests

from tokenweight.errors import UserError
from tokenweight.recipes.schema import Execution

ANSWER_SECONDS, TOKEN_SECONDS = 10.0, 120.0  # of a list of models, and of a token where the model may still be loaded
KEY = "OPENAI_API_KEY"  # where the server wants one: lm-eval's client reads it, too
_NO_API = "does not speak OpenAI's protocol (/{path} is not its JSON); correct the address, which mostly ends in /v1"


def check(execution: Execution | None = None) -> None:
    """UserError where the client is not installed, or, once it is known which, the server does not answer or has no such model."""
    if find_spec("tenacity") is None:
        raise UserError("backend endpoint: lm-eval's client is not installed; run `pip install 'lm-eval[api]'`")
    if execution is not None and execution.endpoint is None:
        raise UserError("--endpoint: is missing, and backend endpoint needs it; give the server's URL")
    if execution is not None:
        place(str(execution.endpoint))


@cache
def place(endpoint: str) -> tuple[str, str]:
    """Address of the API and the model's name there. UserError where no such server answers, or it has no such model."""
    url, _, name = endpoint.rstrip("/").partition("#")
    url = url.rstrip("/")
    listed = _asked(url, "models")
    if listed is None:  # not all have the list
        if not name or _asked(url, "completions", {"model": name, "prompt": "a", "max_tokens": 1}) is None:
            what = f"/completions, or no model {name}" if name else "/models"
            raise UserError(
                f"--endpoint {url}: has no {what}; correct the address, which mostly ends in /v1, or write {url}#NAME"
            )
        names = [name]
    else:
        try:
            names = [str(one["id"]) for one in listed["data"]]
        except (LookupError, TypeError):
            raise UserError(f"--endpoint {url}: {_NO_API.format(path='models')}") from None
    name = name or (names[0] if len(names) == 1 else "")
    if name not in names:
        which = f"has no model {name}" if name else "does not say which model"
        raise UserError(f"--endpoint {url}: {which} (it has {', '.join(names) or 'none'}); write {url}#NAME")
    return url, name


def _asked(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """JSON that a server answers; None: it has no such page. UserError, in words, where it gives neither."""
    headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get(KEY)) else {}
    method, seconds = ("GET", ANSWER_SECONDS) if body is None else ("POST", TOKEN_SECONDS)
    way = "start the server, or correct the address"
    try:
        answer = requests.request(method, f"{url}/{path}", json=body, headers=headers, timeout=seconds)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        if answer.ok:
            return answer.json()
        is_denied = answer.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        why = f"refuses ({answer.status_code} {answer.reason}); {f'set {KEY}' if is_denied else way}"
    except requests.JSONDecodeError:
        why = _NO_API.format(path=path)
    except ValueError:
        why = "is no address of a server; write for example http://127.0.0.1:8000/v1"
    except requests.RequestException as error:
        why = f"does not answer ({reason(error)}); {way}"
    raise UserError(f"--endpoint {url}: {why}")


def reason(error: Exception) -> str:
    """What a server did in place of an answer, in words."""
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None) or 0
    if status >= HTTPStatus.BAD_REQUEST:
        return f"{status} {responses.get(status, '')}".strip()
    if isinstance(error, TimeoutError | requests.Timeout):
        return "not in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "no TLS that is trusted"
    if isinstance(error, aiohttp.ContentTypeError | LookupError | TypeError | ValueError):
        return "what it sent is not JSON with choices and their texts"
    return "the connection failed"
