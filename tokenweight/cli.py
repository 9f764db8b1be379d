"""The command `tokenweight`: its commands, in the order of `--help`, and what happens to errors."""

from __future__ import annotations

import logging
import sys

from cyclopts import App, CycloptsError, Parameter, ValidationError

from tokenweight import embedded
from tokenweight.errors import StageError, UserError

# The commands in order: where each is below tokenweight.commands, imported when it is called, and its help.
COMMANDS = {
    "reproduce": ("reproduce:reproduce", "Run what an experiment needs and is not in the store, and write its table."),
    "plan": ("plan:plan", "Show what an experiment needs, what of it would run and why, and its cost. Runs nothing."),
    "sweep": (
        "reproduce:sweep",
        "Train and evaluate recipes with other values of their fields: one table, one figure.",
    ),
    "serve": ("serve:serve", "Register the deployments of prefect.yaml on the Prefect server in use, and run them."),
    "show-config": ("plan:show_config", "Print a recipe with the origin of each value."),
    "report": ("report:report", "Render an experiment again from the records in the store. Loads no model."),
    "targets": ("plan:targets", "List the paper's tables and figures: recipes, what is in the store, GPU-hours."),
    "evaluate": (
        "evaluation:evaluate",
        "Run the paper's evaluation on any causal language model, and write its table.",
    ),
    "runtimes": ("report:runtimes", "Render Table 6, the run time of each weighting, from measurements on your GPUs."),
    "audit": ("report:audit", "Recompute what follows from other numbers of the paper, and list what does not."),
    "doctor": ("doctor:doctor", "Show what is here and what is missing: packages, GPUs, disk, data, credentials."),
    "inspect": ("inspection:inspect_text", "Show the losses and the weight of every token of a text, as Table 1 does."),
    "ruler generate": ("evaluation:ruler_generate", "Write samples of one task of RULER as JSON Lines."),
    "rescore longbench": ("evaluation:rescore_longbench", "Score predictions of LongBench's 16 English tasks."),
    "rescore bbh": ("evaluation:rescore_bbh", "Score outputs of BIG-Bench-Hard, by a strict and a tolerant pattern."),
    "data fetch": ("evaluation:data_fetch", "Fetch RULER's sources from where they are published; check SHA-256."),
    "store ls": ("store:ls", "List the artifacts: size, date, state, and which experiments need them."),
    "store verify": ("store:verify", "Check records and sizes of files; exit code 1 where an artifact is damaged."),
    "store pack": ("store:pack", "Pack the records of all that is finished: samples and metrics, no weights."),
    "store gc": ("store:gc", "List what nothing could use any more; --yes removes it."),
}
GROUPS = {
    "ruler": "RULER: samples of its 13 tasks for any tokenizer and length.",
    "rescore": "Score stored outputs again, without a model.",
    "data": "Published data that the evaluation needs.",
    "store": "Look at the store, check it, clean it up (docs/store.md).",
}


def _app(name: str, text: str, order: int = 0) -> App:
    return App(
        name=name, help=text, sort_key=order, help_format="plaintext", version_flags=[], result_action="return_value",
        default_parameter=Parameter(negative=()),
    )  # fmt: skip


app = _app("tokenweight", "Token weighting for long-range language modeling: the paper's tables, stage by stage.")
for _name, _text in GROUPS.items():
    app.command(_app(_name, _text, len(COMMANDS)))
for _order, (_name, (_place, _text)) in enumerate(COMMANDS.items()):
    _group, _, _own = _name.rpartition(" ")
    (app[_group] if _group else app).command(f"tokenweight.commands.{_place}", name=_own, help=_text, sort_key=_order)


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2, a failed stage one line and exit code 1."""
    logging.captureWarnings(True)
    embedded.quiet()
    try:
        app(sys.argv[1:], exit_on_error=False, print_error=False)
    except KeyboardInterrupt:
        _stop("interrupted; the same command resumes", 130)
    except CycloptsError as error:
        _stop(_message(error), 2)
    except ImportError as error:  # of a command's own imports, as cyclopts hands it on
        missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        room = (missing.name or "").replace(".", "/")
        if not room.startswith("tokenweight/"):
            raise
        _stop(f"this installation leaves out {room}, which the command needs", 2)
    except UserError as error:
        _stop(str(error), 2)
    except StageError as error:
        _stop(str(error), 1)


def _message(error: CycloptsError) -> str:
    """What is wrong with the arguments; of a bound, pydantic's sentence alone."""
    error.verbose = False
    if isinstance(error, ValidationError) and (errors := getattr(error.__cause__, "errors", None)):
        error.exception_message = errors()[0]["msg"]
    return str(error)


def _stop(message: str, code: int) -> None:
    print("error:", " ".join(message.split()), file=sys.stderr)
    logging.getLogger("prefect").setLevel(logging.ERROR)  # its farewell would follow the line that matters
    sys.exit(code)
