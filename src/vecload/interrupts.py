"""Ctrl-C and SIGTERM: once, and the run finishes what is in flight; twice, and it stops where it is."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from vecload.errors import Interrupted


class Interrupts:
    """While entered, the first signal only sets `received`. A library call off the main thread leaves signals alone."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            raise Interrupted(number)
        self.received = number
