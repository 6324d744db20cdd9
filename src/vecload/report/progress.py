"""The live display of a run, for a person at a terminal. It reads the report; the run knows nothing of it."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from vecload.report.terminal import duration, printable

if TYPE_CHECKING:
    from rich.live import Live

    from vecload.report.run_report import RunReport

REFRESH_PER_SECOND = 4
WINDOW_SECONDS = 60.0
"""The rate behind the remaining time is taken over this long: unchanged documents fly by and say little of the rest."""


class Line:
    """The line of a run, computed anew from its report at each refresh."""

    def __init__(self, report: RunReport, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def __str__(self) -> str:
        report = self._report
        listed = f"{report.documents.listed:,}" + ("" if report.listing_complete else "+")
        parts = [printable(report.state), f"{report.documents_done:,}/{listed} documents"]
        if report.chunks.embedded:
            parts.append(f"{report.chunks.embedded:,} chunks embedded")
        if report.tokens_per_second:
            parts.append(f"{report.tokens_per_second:,.0f} tokens/s")
        parts.append(duration(report.elapsed))
        left = self.seconds_left()
        if left is not None:
            parts.append(f"about {duration(left)} left")
        return " · ".join(parts)

    def seconds_left(self) -> float | None:
        """None as long as nobody can know: the listing goes on, or nothing was done lately."""
        report, now = self._report, self._clock()
        self._seen.append((now, report.documents_done))
        while now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        done, left = report.documents_done - before, report.documents.listed - report.documents_done
        if not report.listing_complete or done <= 0 or left <= 0:
            return None
        return left * (now - since) / done


@contextmanager
def progress(report: RunReport, *, enabled: bool) -> Iterator[None]:
    """Shows the run on stderr while it goes, and clears the line at the end; nothing when stderr is no terminal.

    A display that fails never ends the run.
    """
    live = _live(report) if enabled and sys.stderr.isatty() else None
    if live is not None:
        with suppress(Exception):
            live.start()
    try:
        yield
    finally:
        if live is not None:
            with suppress(Exception):
                live.stop()


def _live(report: RunReport) -> Live:
    # Imported here: rich takes a while, and most runs have no terminal.
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    line = Line(report)

    def render() -> Text:
        try:
            return Text(str(line), no_wrap=True, overflow="ellipsis")
        except Exception:  # the refresh thread would die with a traceback on the person's screen
            return Text("")

    return Live(
        get_renderable=render,
        console=Console(stderr=True),
        refresh_per_second=REFRESH_PER_SECOND,
        transient=True,
        redirect_stdout=False,
    )
