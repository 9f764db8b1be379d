"""Backend `endpoint`: an optional room. A server that speaks OpenAI's protocol is asked; whether it can be is checked first."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from functools import cache
from importlib.util import find_spec

from tokenweight.errors import UserError
from tokenweight.recipes.schema import Execution

ANSWER_SECONDS = 10.0
KEY = "OPENAI_API_KEY"  # where the server wants one: lm-eval's client reads it, too


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
    """Address of the API and the model's name there. UserError where the server does not answer, or lists models without it."""
    url, _, name = endpoint.rstrip("/").partition("#")
    url = url.rstrip("/")
    headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get(KEY)) else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}/models", headers=headers), timeout=ANSWER_SECONDS
        ) as answer:
            names = [str(one["id"]) for one in json.load(answer)["data"]]
    except urllib.error.HTTPError as error:
        if error.code != 404:  # not all have the list
            raise UserError(f"--endpoint {url}: refuses access ({error.code} {error.reason}); set {KEY}") from None
        names = [name] if name else []
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = getattr(error, "reason", error)
        raise UserError(
            f"--endpoint {url}: does not answer ({reason}); start the server, or correct the address"
        ) from None
    name = name or (names[0] if len(names) == 1 else "")
    if name not in names:
        which = f"has no model {name}" if name else "does not say which model"
        raise UserError(f"--endpoint {url}: {which} (it has {', '.join(names) or 'no list'}); write {url}#NAME")
    return url, name
