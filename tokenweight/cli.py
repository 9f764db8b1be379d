"""The command `tokenweight`: its commands, in the order of `--help`, and what happens to errors."""

from __future__ import annotations

import logging
import sys

import typer
from typer.exceptions import TyperException

from tokenweight import embedded
from tokenweight.commands.doctor import doctor
from tokenweight.commands.evaluate import agree, evaluate
from tokenweight.commands.plan import plan
from tokenweight.commands.recipes import show_config, targets
from tokenweight.commands.report import audit, report, runtimes
from tokenweight.commands.reproduce import reproduce
from tokenweight.commands.server import app as server
from tokenweight.commands.store import app as store
from tokenweight.commands.sweep import sweep
from tokenweight.errors import StageError, UserError
from tokenweight.evaluation.commands import data, rescore, ruler
from tokenweight.inspection.command import inspect_command

app = typer.Typer(
    help="Token weighting for long-range language modeling: reproduce the paper's tables, one stage at a time.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

app.command("reproduce")(reproduce)
app.command("plan")(plan)
app.command("sweep")(sweep)
app.command("show-config")(show_config)
app.command("report")(report)
app.command("targets")(targets)
app.command("evaluate")(evaluate)
app.command("agree")(agree)
app.command("runtimes")(runtimes)
app.command("audit")(audit)
app.command("doctor")(doctor)
app.command("inspect")(inspect_command)
app.add_typer(ruler, name="ruler")
app.add_typer(rescore, name="rescore")
app.add_typer(data, name="data")
app.add_typer(server, name="server")
app.add_typer(store, name="store")


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2, a failed stage one line and exit code 1."""
    logging.captureWarnings(True)
    embedded.quiet()
    try:
        app(args=sys.argv[1:] or ["--help"], standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        _stop("interrupted; run the same command again to go on", 130)
    except TyperException as error:
        _stop(error.format_message().replace("Value error, ", ""), error.exit_code)
    except UserError as error:
        _stop(str(error), 2)
    except StageError as error:
        _stop(str(error), 1)


def _stop(message: str, code: int) -> None:
    print("error:", " ".join(message.split()), file=sys.stderr)
    logging.getLogger("prefect").setLevel(logging.ERROR)  # its farewell would stand below the line that matters
    sys.exit(code)
