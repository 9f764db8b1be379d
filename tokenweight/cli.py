"""The command `tokenweight`: its commands, in the order of `--help`, and what happens to errors."""

import errno
import logging
import os
import select
import signal
import sys
import tomllib
from pathlib import Path

from cyclopts import App, CycloptsError, Parameter, ValidationError

import tokenweight
from tokenweight import embedded
from tokenweight.errors import StageError, UserError

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_REFUSED = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EBADF,
)  # a disk, or a standard output that is closed
# By name: where it is below tokenweight.commands, and its help.
COMMANDS: dict[str, tuple[str, str]] = _TABLE["commands"]


def _app(name: str, text: str, order: int = 0, version_flags: tuple[str, ...] = ()) -> App:
    return App(
        name=name, help=text, sort_key=order, help_format="plaintext", result_action="return_value",
        version_flags=version_flags, version=lambda: tokenweight.__version__, default_parameter=Parameter(negative=()),
    )  # fmt: skip


_ABOUT = "Token weighting for long-range language modeling: the paper's tables, stage by stage."
app = _app("tokenweight", _ABOUT, version_flags=("--version",))
for _name, _text in _TABLE["groups"].items():
    app.command(_app(_name, _text, len(COMMANDS)))
for _order, (_name, (_place, _text)) in enumerate(COMMANDS.items()):
    _group, _, _own = _name.rpartition(" ")
    (app[_group] if _group else app).command(f"tokenweight.commands.{_place}", name=_own, help=_text, sort_key=_order)


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2, a failed stage one line and exit code 1."""
    if sys.getfilesystemencoding() != "utf-8":  # by the shell's locale; what others read, such as word lists, is UTF-8
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, sys.orig_argv)
    _open_what_is_closed()
    logging.captureWarnings(True)
    embedded.quiet()
    try:
        _refuse_empty(sys.argv[1:])
        app(sys.argv[1:], exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _stop("interrupted; run the same command again to resume", 130)
    except OSError as error:
        unread = isinstance(error, BrokenPipeError) and _is_unread(sys.stdout.fileno())
        if not unread and (error.filename or error.errno not in _REFUSED):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the end
        if unread:
            sys.exit(128 + signal.SIGPIPE)
        _stop(f"the output: cannot be written ({error.strerror}); make room, or send it elsewhere", 1)
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


def _open_what_is_closed() -> None:
    """Standard streams that the shell closed (`>&-`): what is opened next would take their numbers, and what is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "w" if number else "r"))
            os.set_inheritable(number, True)


def _is_unread(file: int) -> bool:
    """Whether it is a pipe whose reader has seen enough, such as `head`."""
    poll = select.poll()
    poll.register(file, 0)
    return bool(poll.poll(0))


def _refuse_empty(arguments: list[str]) -> None:
    """UserError for a variable of the shell that is not set: as a path it would be the working directory."""
    for before, argument in zip(("", *arguments), arguments, strict=False):
        option, equals, value = argument.partition("=") if argument.startswith("-") else (before, "", argument)
        if not value.strip() and (equals or not argument.startswith("-")):
            what = option if option.startswith("-") else "an argument"
            raise UserError(f"{what}: is empty; give a value, or leave it out")


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


if __name__ == "__main__":
    main()
