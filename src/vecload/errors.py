"""The errors that a user sees. Each message is one sentence: what, which document or setting, what to do.

`exit_code` is the exit status of the command line: 1 something failed, 2 refused before anything was written.
"""

from __future__ import annotations

import re

_LOGIN = re.compile(r"(?<=://)[^\s/]*@")


class VecloadError(Exception):
    """The base of every error that vecload raises on purpose."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        # Whatever quotes a URL, the user and password in it are not for a log.
        super().__init__(_LOGIN.sub("***@", message))


class UsageError(VecloadError):
    """A setting, a flag or a name is wrong. Nothing was touched."""

    exit_code = 2


class RefusedError(VecloadError):
    """The job would mix or harm data: another fingerprint, a foreign collection. Nothing was touched."""

    exit_code = 2


class MissingDependencyError(VecloadError):
    """A driver is not installed; the message holds the exact pip command."""

    exit_code = 2

    def __init__(self, what: str, extra: str, *, command: str | None = None) -> None:
        command = command or f"pip install 'vecload[{extra}]'"
        super().__init__(f"{what} needs a package that is not installed; run: {command}")


class SourceError(VecloadError):
    """The source as a whole failed: it is missing, or refuses the credentials."""


class SinkError(VecloadError):
    """The store failed for good, or stayed out of reach for longer than the retries last."""


class RejectedError(SinkError):
    """The store refused these very points (not the connection, not the collection). The core splits the request."""


class EngineError(VecloadError):
    """The embedding engine did not start, or died."""


class EngineDiedError(EngineError):
    """The engine's process is gone: no batch will succeed any more, so none of its texts is to blame."""


class LedgerError(VecloadError):
    """The ledger is locked, broken, or of a newer version."""


class Interrupted(VecloadError):
    """Ctrl-C or SIGTERM. What was in flight is finished and recorded; the next run goes on from there."""

    def __init__(self, signal_number: int) -> None:
        super().__init__("Interrupted; everything acknowledged so far is recorded, run the same command to go on.")
        self.exit_code = 128 + signal_number
