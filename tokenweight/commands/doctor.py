"""The command `tokenweight doctor`."""

from __future__ import annotations

from importlib.util import find_spec

from tokenweight.commands.command import command
from tokenweight.commands.showing import print_json
from tokenweight.doctor import Finding, examine, print_findings
from tokenweight.recipes.options import STORE, JsonOption, StoreOption
from tokenweight.servers import answers, nobody_answers


@command
def doctor(*, store: StoreOption = STORE, as_json: JsonOption = False) -> None:
    """What is here and what is missing."""
    findings = [*examine(store.expanduser().resolve()), *_prefect_server()]
    if as_json:
        print_json([finding.__dict__ for finding in findings])
    else:
        print_findings(findings)


def _prefect_server() -> list[Finding]:
    """The server that `tokenweight serve` and `prefect deployment run` use here."""
    if find_spec("prefect") is None:
        return []
    from prefect.settings import get_current_settings

    from tokenweight.flows.server import chosen_server

    url, source = chosen_server(get_current_settings().api.url)
    if answers(url):
        return [Finding("Prefect server", "ok", f"{url.removesuffix('/api')} ({source})")]
    return [Finding("Prefect server", "absent", nobody_answers(url, source))]
