"""The parser process: reads documents from stdin, writes their text to stdout, under limits.

Run as `python -m vecload.text.parse_worker MEMORY_BYTES TIMEOUT_SECONDS` by `vecload.text.parse_pool`. A frame is 8
bytes of length and that many bytes. A request is two frames, the document's name and its content; the answer is two
frames, a JSON object (`{"parser", "version"}` or `{"reason", "message"}`) and the text in UTF-8.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from typing import IO, TYPE_CHECKING

from vecload.text.failure import ParseFailure
from vecload.text.parsers import BUILTIN, HEAD_BYTES, ParsedText, choose, installed, is_foreign, parse_with

if TYPE_CHECKING:
    from vecload.contracts import Parser

_LENGTH = struct.Struct("<Q")

ORPHAN_SECONDS = 10
"""How much longer than the parent a worker waits before it ends itself: only one whose parent died gets that far."""


def write_frame(stream: IO[bytes], data: bytes) -> None:
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)


def read_frame(stream: IO[bytes]) -> bytes:
    """The next frame. Raises EOFError where the stream ends, also in mid-frame."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


def load_parsers() -> tuple[list[Parser], list[str]]:
    """The built-in and the installed parsers, and a sentence on each that cannot be imported."""
    parsers: list[Parser] = list(BUILTIN)
    faults = []
    for point in filter(is_foreign, installed()):
        try:
            parsers.append(point.load())
        except Exception as error:
            faults.append(f"The installed parser {point.name!r} ({point.value}) cannot be imported: {error!r}.")
    return parsers, faults


def parse(name: str, content: bytes, parsers: list[Parser], faults: list[str]) -> ParsedText:
    try:
        return parse_with(choose(name, content[:HEAD_BYTES], parsers), content)
    except ParseFailure as failure:
        # The parser that would have read this one may be among those that are broken.
        raise ParseFailure(failure.reason, " ".join([failure.message, *faults])) from failure


def main() -> None:
    memory_bytes, timeout_s = int(sys.argv[1]), float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # A library that reads or prints must not disturb the frames.
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    # The parent keeps the time. This alarm, whose default action ends the process even within C code, is for a
    # worker whose parent was killed while it hung; an idle one ends when its stdin does.
    signal.setitimer(signal.ITIMER_REAL, timeout_s + ORPHAN_SECONDS)
    parsers, faults = load_parsers()
    while True:
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            name = read_frame(requests).decode("utf-8", "surrogatepass")
            signal.setitimer(signal.ITIMER_REAL, timeout_s + ORPHAN_SECONDS)
            content = read_frame(requests)
        except EOFError:
            return
        text = b""
        try:
            parsed = parse(name, content, parsers, faults)
            text = parsed.text.encode("utf-8")
            answer: dict[str, str | int] = {"parser": parsed.parser_name, "version": parsed.parser_version}
        except ParseFailure as failure:
            answer = {"reason": failure.reason, "message": failure.message}
        except MemoryError:
            answer = {"reason": "memory", "message": "The document needs more memory than a parser may use."}
        del content
        write_frame(answers, json.dumps(answer).encode())
        write_frame(answers, text)
        answers.flush()


if __name__ == "__main__":
    main()
