"""Parsing with limits: formats that need a real parser are read in processes of their own.

Plain text and Markdown are only decoded, which is linear, in memory-safe code and cheaper than a trip through a pipe;
they are read here, so that a folder of Markdown never starts a process. As soon as somebody else's parser is installed
everything goes to the workers, since only there may its code be asked what it recognises.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import cast

from vecload.text.failure import ParseFailure, Reason
from vecload.text.parse_worker import read_frame, write_frame
from vecload.text.parsers import (
    BUILTIN,
    HEAD_BYTES,
    MARKDOWN,
    TEXT,
    ParsedText,
    choose,
    installed,
    is_foreign,
    parse_with,
)

DEFAULT_MAX_DOCUMENT_BYTES = 64 << 20


class ParserPool:
    """Turns the bytes of documents into text, in up to `processes` workers. Safe to use from several threads.

    A document that hangs, crashes its worker or needs too much memory costs itself: the next one gets a fresh worker.
    Workers start when first needed, need no `__main__` guard in the caller's script, and end with this process, also
    when it is killed.
    """

    def __init__(
        self,
        processes: int = 1,
        timeout_s: float = 60.0,
        memory_bytes: int = 2 << 30,
        max_document_bytes: int = DEFAULT_MAX_DOCUMENT_BYTES,
    ) -> None:
        """`timeout_s` is for one document, `memory_bytes` the address space of one worker.

        `max_document_bytes` bounds a document's content, and its text once more.
        """
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._max_document_bytes = max_document_bytes
        self._foreign = any(map(is_foreign, installed()))
        self._closed = False
        self._free: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
        for _ in range(processes):
            self._free.put(None)
        self._processes = processes

    def parse(self, name: str, content: bytes) -> ParsedText:
        """The cleaned text of a document; `name` hints at the format. Blocks until a worker is free.

        Raises ParseFailure with a reason code.
        """
        if len(content) > self._max_document_bytes:
            raise ParseFailure(
                "too_large",
                f"The document has {len(content):,} bytes, over max_document_bytes = {self._max_document_bytes:,}.",
            )
        if not self._foreign:
            parser = choose(name, content[:HEAD_BYTES], BUILTIN)
            if parser.name in (TEXT.name, MARKDOWN.name):
                return parse_with(parser, content)
        return self._parse_in_worker(name, content)

    def _parse_in_worker(self, name: str, content: bytes) -> ParsedText:
        worker = self._free.get()
        try:
            while True:
                if self._closed:
                    raise RuntimeError("the parser pool is closed")
                if worker is None:
                    worker = _Worker(self._memory_bytes, self._timeout_s, self._max_document_bytes)
                fresh = worker.parsed == 0
                try:
                    return worker.parse(name, content)
                except ParseFailure as failure:
                    if failure.reason not in ("timeout", "memory", "crashed"):
                        raise
                    worker.kill()
                    worker = None
                    # What earlier documents left behind in the worker may have been the cause.
                    if fresh or failure.reason == "timeout":
                        raise
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """Waits for documents being parsed, then ends the workers."""
        self._closed = True
        for _ in range(self._processes):
            worker = self._free.get()
            if worker is not None:
                worker.kill()
        for _ in range(self._processes):
            self._free.put(None)  # whoever still waits in parse() is told so

    def __enter__(self) -> ParserPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Worker:
    def __init__(self, memory_bytes: int, timeout_s: float, max_text_bytes: int) -> None:
        self.parsed = 0
        self._timeout_s = timeout_s
        self._max_text_bytes = max_text_bytes
        # -P: the working directory may hold anything, also a lxml.py. A session of its own: Ctrl-C is the parent's to
        # handle, and what the parser started is killed with it.
        command = [sys.executable, "-P", "-m", "vecload.text.parse_worker", str(memory_bytes), str(timeout_s)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def parse(self, name: str, content: bytes) -> ParsedText:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        timed_out = threading.Event()

        def give_up() -> None:
            timed_out.set()
            self._kill_group()

        timer = threading.Timer(self._timeout_s, give_up)
        timer.daemon = True
        timer.start()
        try:
            write_frame(process.stdin, name.encode("utf-8", "surrogatepass"))
            write_frame(process.stdin, content)
            process.stdin.flush()
            answer = json.loads(read_frame(process.stdout))
            text = read_frame(process.stdout)
        except (EOFError, OSError):
            self._kill_group()
            status = process.wait()
            if timed_out.is_set():
                raise ParseFailure(
                    "timeout", f"The document took longer to parse than {self._timeout_s:g} seconds."
                ) from None
            raise ParseFailure("crashed", f"The parser's process {_how_it_ended(status)}.") from None
        finally:
            timer.cancel()
        self.parsed += 1
        if "reason" in answer:
            raise ParseFailure(cast(Reason, answer["reason"]), answer["message"])
        if len(text) > self._max_text_bytes:
            raise ParseFailure(
                "too_large",
                f"The document's text has {len(text):,} bytes, over max_document_bytes = {self._max_text_bytes:,}.",
            )
        return ParsedText(text.decode("utf-8"), answer["parser"], answer["version"])

    def kill(self) -> None:
        self._kill_group()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was still to be written to it
                    pipe.close()

    def _kill_group(self) -> None:
        # Only before wait(): afterwards the number may be another process's.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"
