"""What an error looks like to a person and to the shell, in one place."""

from __future__ import annotations

from vecload.errors import VecloadError
from vecload.report.terminal import printable

INTERRUPTED = 130


def exit_code(error: BaseException) -> int:
    """The exit status: the error's own, 130 for Ctrl-C, 1 for what nobody foresaw."""
    if isinstance(error, VecloadError):
        return error.exit_code
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def sentence(error: BaseException) -> str:
    """One line."""
    if isinstance(error, VecloadError):
        return printable(str(error))
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted."
    text = printable(" ".join(str(error).split()))
    return f"unexpected {type(error).__name__}: {text or 'no message'}; run again with --debug for the traceback"


def worst(codes: list[int]) -> int:
    """The exit status of several jobs: a failure or an interrupt (1, 130, 143), then 2, then 3, then 0.

    A failed store or source comes first, since it may pass by itself; 2 needs someone to change a setting; after 3
    everything that could be done was done.
    """
    for code in codes:
        if code not in (0, 2, 3):
            return code
    return next((code for code in (2, 3) if code in codes), 0)
