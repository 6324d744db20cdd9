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
"""Rates are taken over this long: at the start unchanged documents fly by, which says little of the rest."""


class Line:
    """The line of a run, computed anew from its report at each refresh."""

    def __init__(self, report: RunReport, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._seen: deque[tuple[float, int, int]] = deque([(clock(), 0, 0)])

    def __str__(self) -> str:
        report = self._report
        documents_per_second, tokens_per_second = self._rates()
        listed = f"{report.documents.listed:,}" + ("" if report.listing_complete else "+")
        parts = [printable(report.state), f"{report.documents_done:,}/{listed} documents"]
        if report.chunks.embedded:
            parts.append(f"{report.chunks.embedded:,} chunks embedded")
        if tokens_per_second:
            parts.append(f"{tokens_per_second:,.0f} tokens/s")
        parts.append(duration(report.elapsed))
        left = report.documents.listed - report.documents_done
        # Nobody can know how much is left while the listing goes on.
        if report.listing_complete and documents_per_second and left > 0:
            parts.append(f"about {duration(left / documents_per_second)} left")
        return " · ".join(parts)

    def _rates(self) -> tuple[float, float]:
        """Documents and tokens a second, over the last WINDOW_SECONDS."""
        now, documents, tokens = self._clock(), self._report.documents_done, self._report.tokens
        self._seen.append((now, documents, tokens))
        while now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()
        since, documents_before, tokens_before = self._seen[0]
        if now == since:
            return 0.0, 0.0
        return (documents - documents_before) / (now - since), (tokens - tokens_before) / (now - since)


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
