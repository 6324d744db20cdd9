"""A worker process and its futures: the client's side of `vecload.engines.worker`."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from vecload.engines import frames
from vecload.errors import EngineDiedError, EngineError

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix, TokenBatch

worker_log = logging.getLogger("vecload.engine")
"""What vLLM prints, a line a record at the level DEBUG."""

_CLOSE_SECONDS = 10
_LOG_PREFIX = re.compile(r"^(\([^)]*pid=\d+\)\s*)*((DEBUG|INFO|WARNING|ERROR) [\d-]+ [\d:]+ \[[^\]]*\]\s*)?")
_ERROR_LINE = re.compile(r"^[\w.]*(Error|Exception)\b:? *\S")


class WorkerProcess:
    """Starts the worker, sends it batches, and fails every open future when it dies.

    Thread-safe. Works without a `__main__` guard in the caller's script, since it does not use multiprocessing.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._open: dict[int, tuple[Future[FloatMatrix], int]] = {}
        """The futures without a result, each with its batch's tokens."""
        self._next = 0
        self._failure: str | None = None
        """Why the worker gave up, in its own words."""
        self._death: str | None = None
        """Why no more batches are taken; what every open future is told."""
        self._ready: Future[dict[str, Any]] = Future()
        self._printed: deque[str] = deque(maxlen=400)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout: float) -> dict[str, Any]:
        """Blocks until the model is loaded; what the worker says of itself. Raises EngineError."""
        ours, workers = socket.socketpair()
        self._process = subprocess.Popen(
            # -P: a folder in the working directory must not shadow a package that the worker imports.
            [sys.executable, "-P", "-m", "vecload.engines.worker"],
            stdin=subprocess.PIPE,
            stdout=workers.fileno(),
            stderr=subprocess.PIPE,
            # A session of its own: Ctrl-C reaches vecload alone, which finishes what is in flight.
            start_new_session=True,
        )
        workers.close()
        log = self._thread(self._read_log, self._process.stderr)
        replies = self._thread(self._read_replies, ours)
        self._thread(self._watch, self._process, log, replies)
        with suppress(BrokenPipeError):  # it died at once: the watcher says why
            frames.write_settings(self._stdin, self._settings)
        try:
            return self._ready.result(timeout)
        except FutureTimeoutError:
            self._kill()
            raise EngineError(
                f"The engine was not ready after {timeout:.0f} seconds; raise transform.engine.start_timeout_seconds."
            ) from None

    def submit(self, batch: TokenBatch) -> Future[FloatMatrix]:
        future: Future[FloatMatrix] = Future()
        future.set_running_or_notify_cancel()  # the worker cannot take a batch back
        with self._lock:
            if self._death is not None:
                future.set_exception(EngineDiedError(self._death))
                return future
            number = self._next
            self._next += 1
            self._open[number] = (future, batch.tokens)
        with suppress(BrokenPipeError, ValueError), self._send_lock:  # died or closed meanwhile: the watcher tells
            frames.write_batch(self._stdin, number, batch)
        return future

    @property
    def open_tokens(self) -> int:
        """How many tokens wait for their vectors here."""
        with self._lock:
            return sum(tokens for _, tokens in self._open.values())

    def close(self) -> None:
        """Lets the worker end by itself, so that it frees what it shares; kills it when that takes too long."""
        if self._process is None:
            return
        with self._lock:
            self._death = self._death or "The engine was closed."
            # Interrupted: whoever asked for it does not wait for a model to load, or for a batch.
            hurried = bool(self._open) or not self._ready.done()
        if hurried:
            self._kill()
        with suppress(OSError, ValueError), self._send_lock:
            frames.write_end(self._stdin)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_SECONDS)
        self._kill()
        self._process.wait()

    @property
    def _stdin(self) -> BinaryIO:
        assert self._process is not None
        return cast(BinaryIO, self._process.stdin)

    @staticmethod
    def _thread(target: Any, *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True, name=f"vecload{target.__name__}")
        thread.start()
        return thread

    def _kill(self) -> None:
        """Ends the whole group: guard, worker, and the processes that vLLM started."""
        assert self._process is not None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read_log(self, stream: IO[bytes]) -> None:
        for raw in stream:
            # Progress bars overwrite their line.
            line = raw.decode(errors="replace").rpartition("\r")[2].rstrip()
            if line:
                self._printed.append(_LOG_PREFIX.sub("", line))
                worker_log.debug("%s", line)

    def _read_replies(self, ours: socket.socket) -> None:
        stream = frames.SocketReader(ours)
        while True:
            try:
                kind, number, content = frames.read_reply(stream)
            except EOFError:
                ours.close()
                return
            if isinstance(content, str):
                self._told(kind, number, content)
            elif future := self._taken(number):
                future.set_result(content)

    def _told(self, kind: int, number: int, text: str) -> None:
        if kind == frames.READY:
            self._ready.set_result(json.loads(text))
        elif number == frames.NO_BATCH:
            with self._lock:
                self._failure = text
        elif future := self._taken(number):
            future.set_exception(EngineError(f"The engine failed on a batch: {text}."))

    def _taken(self, number: int) -> Future[FloatMatrix] | None:
        with self._lock:
            found = self._open.pop(number, None)
        return found[0] if found else None

    def _watch(self, process: subprocess.Popen[bytes], log: threading.Thread, replies: threading.Thread) -> None:
        """Waits for the end of the worker, whatever its reason, and tells everybody who still waits for a result."""
        code = process.wait()
        self._kill()
        # The whole group is gone, so both streams end. What the worker said of its own failure is read by then.
        log.join(_CLOSE_SECONDS)
        replies.join(_CLOSE_SECONDS)
        with self._lock:
            self._death = death = self._death or self._cause(code)
            waiting = [future for future, _ in self._open.values()]
            self._open.clear()
        for future in waiting:
            future.set_exception(EngineDiedError(death))
        with suppress(InvalidStateError):  # it was ready long ago
            self._ready.set_exception(EngineError(death))
        for stream in (process.stdin, process.stderr):
            with suppress(OSError):
                if stream is not None:
                    stream.close()

    def _cause(self, code: int) -> str:
        """Why the worker ended, in one sentence."""
        errors = [line for line in self._printed if _ERROR_LINE.search(line) and "root cause" not in line]
        if self._failure is not None:
            # vLLM's parent process says only that its child failed; the reason is what the child printed.
            reason = f" ({errors[-1][:400]})" if "root cause" in self._failure and errors else ""
            return f"{self._failure.rstrip('.')}{reason}."
        if code > 128 or code < 0:
            how = f"was killed by {_signal_name(code)}"
        else:
            how, errors = f"ended with status {code}", errors or list(self._printed)
        return f"The engine's worker {how}{f'; it said: {errors[-1][:400]}' if errors else ''}.".replace("..", ".")


def _signal_name(code: int) -> str:
    number = code - 128 if code > 128 else -code
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
