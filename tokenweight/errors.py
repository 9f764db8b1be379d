"""Errors that a user can mend: shown as one line, exit code 2, never a traceback."""


class UserError(Exception):
    """Bad input: the message names the field or file, what is wrong, and what to do."""


class StageError(RuntimeError):
    """A stage could not finish for a reason that is not the user's input (exit code 1)."""
