"""Ctrl-C and SIGTERM: once, and the run finishes what is in flight; twice, and it stops where it is."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from vecload.errors import Interrupted

log = logging.getLogger("vecload")


class Interrupts:
    """While entered, the first signal only sets `received`, unless it is `at_once`: then it raises.

    A library call off the main thread leaves signals alone.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self._at_once = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Around what leaves nothing in flight, such as the start of the engine."""
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None or self._at_once:
            raise Interrupted(number)
        self.received = number
        log.warning("Interrupted: finishing what is in flight; once more stops at once.")
