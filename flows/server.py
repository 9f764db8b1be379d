"""Which Prefect server this process talks to, and who says so."""

import os

from prefect.context import get_settings_context, refresh_global_settings_context
from prefect.settings import get_current_settings

from tokenweight.embedded import answers, nobody_answers
from tokenweight.errors import UserError


def chosen_server(api_url: str | None) -> tuple[str, str]:
    """Address of the API and what names it; `api_url` is Prefect's setting.

    Where nothing names a server it is the one that `prefect server start` starts on this machine.
    """
    if api_url is None:
        api = get_current_settings().server.api
        host = "127.0.0.1" if str(api.host) == "0.0.0.0" else api.host
        return f"http://{host}:{api.port}/api", "default: neither PREFECT_API_URL nor a profile names one"
    if "PREFECT_API_URL" in os.environ:
        return api_url, "PREFECT_API_URL"
    return api_url, f"Prefect's profile {get_settings_context().profile.name} or settings file"


def use_server() -> tuple[str, str]:
    """Let this process and its children talk to the chosen server; UserError where none answers."""
    url, source = chosen_server(get_current_settings().api.url)
    if not answers(url):
        raise UserError(nobody_answers(url, source))
    os.environ["PREFECT_API_URL"] = url
    refresh_global_settings_context()
    return url, source
