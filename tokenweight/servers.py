"""Whether a Prefect server answers; knows no Prefect, so that it can be asked before Prefect is imported."""

from __future__ import annotations

import urllib.error
import urllib.request

SECONDS = 3.0


def answers(api_url: str) -> bool:
    """Whether a server answers at the address of an API, such as http://127.0.0.1:4200/api; a refusal is an answer."""
    try:
        with urllib.request.urlopen(f"{api_url.rstrip('/')}/health", timeout=SECONDS):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def nobody_answers(api_url: str, source: str) -> str:
    """The line for a person whose server does not answer."""
    return f"no Prefect server answers at {api_url} ({source}); start one with `prefect server start`, or name another"
