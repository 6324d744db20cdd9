"""Where log lines go when vecload runs as a command: to stderr, as sentences, without timestamps or logger names."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

from vecload.report.terminal import printable

_PREFIXES = {logging.WARNING: "Warning: ", logging.ERROR: "Error: ", logging.CRITICAL: "Error: "}


@dataclass
class Verbosity:
    """What the flags `--quiet`, `--verbose` and `--debug` ask for."""

    quiet: bool = False
    verbose: bool = False
    debug: bool = False

    @property
    def level(self) -> int:
        if self.verbose or self.debug:
            return logging.DEBUG
        return logging.ERROR if self.quiet else logging.INFO


class _StderrHandler(logging.Handler):
    """Looks stderr up at each line, so that lines go through the progress display while that is on."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = _PREFIXES.get(record.levelno, "") + printable(record.getMessage())
            if record.exc_info:
                line += "\n" + logging.Formatter().formatException(record.exc_info)
            print(line, file=sys.stderr, flush=True)
        except Exception:  # as every handler of the standard library does: logging must not end a run
            self.handleError(record)


_handler = _StderrHandler()


def configure(verbosity: Verbosity) -> None:
    """Sends the lines of the logger `vecload` to stderr; with `--debug` those of every library too.

    Other libraries' own debugging lines stay off in all cases: some of them print request headers, and so secrets.
    """
    root, own = logging.getLogger(), logging.getLogger("vecload")
    for logger in (root, own):
        logger.removeHandler(_handler)
    own.setLevel(verbosity.level)
    # What the engine's process prints comes as debugging lines of this logger: hundreds at a start.
    logging.getLogger("vecload.engine").setLevel(logging.DEBUG if verbosity.debug else logging.INFO)
    if verbosity.debug:
        root.setLevel(logging.INFO)
        root.addHandler(_handler)
    else:
        own.addHandler(_handler)
