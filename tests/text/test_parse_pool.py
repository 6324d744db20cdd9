import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vecload.text.failure import ParseFailure
from vecload.text.parse_pool import ParserPool

PAGE = b"<!doctype html><title>T</title><p>caf&eacute;\x00"

TRICKY = """
import ctypes, os, sys, time

class Tricky:
    name, version, suffixes, extra = "tricky", 7, (".tricky",), None

    def matches(self, head):
        return head.startswith(b"TRICKY ")

    def parse(self, content):
        what = content.split()[1].decode()
        if what == "hang":
            time.sleep(600)
        elif what == "crash":
            ctypes.string_at(0)
        elif what == "eat":
            bytearray(4 << 30)
        elif what == "leak":
            Tricky.kept = bytearray(700 << 20)
        elif what == "exit":
            os._exit(3)
        elif what == "print":
            print("noise", flush=True)
            os.system("echo noise")
        elif what == "raise":
            raise ValueError("line 1\\nis wrong")
        elif what == "nothing":
            return None
        elif what == "import":
            import no_such_module
        elif what == "surrogate":
            return "a\\ud800b\\x00"
        elif what == "long":
            return "x" * 5000
        return f"read by {os.getpid()}"

TRICKY = Tricky()
"""


@pytest.fixture
def tricky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's parser, installed as a package is: a module and its entry point."""
    (tmp_path / "tricky_parser.py").write_text(TRICKY)
    info = tmp_path / "tricky_parser-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tricky-parser\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[vecload.parsers]\ntricky = tricky_parser:TRICKY\nzz_gone = no_such_module:PARSER\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def pool(tricky: None) -> Iterator[ParserPool]:
    with ParserPool(memory_bytes=1 << 30) as pool:
        yield pool


def reason(pool: ParserPool, content: bytes, name: str = "a.bin") -> str:
    with pytest.raises(ParseFailure) as failure:
        pool.parse(name, content)
    return failure.value.reason


def test_each_format_gives_cleaned_text() -> None:
    with ParserPool() as pool:
        assert pool.parse("a.html", PAGE).text == "# T\n\ncafé"
        parsed = pool.parse("a.md", b"\xef\xbb\xbf# T\r\n\x00text")
        assert (parsed.text, parsed.parser_name, parsed.markdown) == ("# T\ntext", "markdown", True)
        parsed = pool.parse("a.log", b"# no heading")
        assert (parsed.text, parsed.parser_name, parsed.markdown) == ("# no heading", "text", False)


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.png"])
def test_binary_content(name: str) -> None:
    with ParserPool() as pool:
        assert reason(pool, b"\x89PNG\r\n\x1a\n" + bytes(100), name) == "binary"


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("crash", "crashed"),
        ("exit", "crashed"),
        ("eat", "memory"),
        ("raise", "broken"),
        ("nothing", "broken"),
        ("import", "broken"),
    ],
)
def test_a_hostile_document_costs_itself_alone(pool: ParserPool, what: str, code: str) -> None:
    assert reason(pool, f"TRICKY {what}".encode()) == code
    assert pool.parse("a.tricky", b"TRICKY fine").text.startswith("read by ")


def test_a_document_that_hangs_is_given_up(tricky: None) -> None:
    with ParserPool(timeout_s=1.5) as pool:
        assert reason(pool, b"TRICKY hang") == "timeout"
        assert pool.parse("a.tricky", b"TRICKY fine").text.startswith("read by ")


def test_what_an_earlier_document_left_behind_harms_no_other(pool: ParserPool) -> None:
    pool.parse("a", b"TRICKY leak")
    assert pool.parse("a", b"TRICKY leak").text.startswith("read by ")


def test_one_worker_serves_many_documents(pool: ParserPool) -> None:
    assert pool.parse("a", b"TRICKY fine").text == pool.parse("b", b"TRICKY fine").text


def test_what_a_parser_prints_does_not_disturb(pool: ParserPool) -> None:
    assert pool.parse("a", b"TRICKY print").text.startswith("read by ")


def test_a_parsers_text_is_cleaned(pool: ParserPool) -> None:
    parsed = pool.parse("a", b"TRICKY surrogate")
    assert (parsed.text, parsed.parser_name, parsed.parser_version) == ("a\ufffdb", "tricky", 7)


def test_somebody_elses_parser_leaves_text_to_the_built_in_one(pool: ParserPool) -> None:
    assert pool.parse("a.txt", b"plain").parser_name == "text"
    assert pool.parse("a.txt", b"TRICKY fine").parser_name == "tricky"


def test_a_parser_that_cannot_be_imported_is_named_where_it_may_have_been_needed(pool: ParserPool) -> None:
    with pytest.raises(ParseFailure, match=r"'zz_gone' \(no_such_module:PARSER\) cannot be imported"):
        pool.parse("a.docx", b"PK\x03\x04\x00\x00\x00\x00")


def test_messages_are_one_line(pool: ParserPool) -> None:
    with pytest.raises(ParseFailure, match="The tricky parser cannot read it: line 1 is wrong"):
        pool.parse("a", b"TRICKY raise")


def test_too_large(tricky: None) -> None:
    with ParserPool(max_document_bytes=1000) as pool:
        assert reason(pool, b"x" * 1001) == "too_large"
        assert reason(pool, b"TRICKY long") == "too_large"
        assert pool.parse("a", b"x" * 1000).text == "x" * 1000


def test_a_missing_library_is_the_documents_failure_with_the_pip_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pypdfium2.py").write_text("raise ImportError('not installed')")
    (tmp_path / "lxml.py").write_text("raise ImportError('not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with ParserPool() as pool:
        for content in (b"%PDF-1.7\n", PAGE):
            with pytest.raises(ParseFailure, match=r"pip install 'vecload\[docs\]'") as failure:
                pool.parse("a", content)
            assert failure.value.reason == "missing_parser"


def test_a_module_in_the_working_directory_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lxml.py").write_text("raise SystemExit('code from the documents ran')")
    monkeypatch.chdir(tmp_path)
    with ParserPool() as pool:
        assert pool.parse("a.html", PAGE).text == "# T\n\ncafé"


def test_several_threads_share_the_workers(tricky: None) -> None:
    texts: list[str] = []
    with ParserPool(processes=2) as pool:
        threads = [
            threading.Thread(target=lambda: texts.append(pool.parse("a", b"TRICKY fine").text)) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(texts) == 8
    assert len(set(texts)) <= 2


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while is_running(pid):
        assert time.monotonic() < deadline, "the worker still runs"
        time.sleep(0.02)


def test_close_ends_the_workers(tricky: None) -> None:
    pool = ParserPool()
    pid = int(pool.parse("a", b"TRICKY fine").text.split()[-1])
    pool.close()
    wait_until_gone(pid)
    with pytest.raises(RuntimeError, match="closed"):
        pool.parse("a", b"TRICKY fine")


def test_a_worker_ends_when_its_parent_is_killed(tricky: None) -> None:
    script = (
        "import time; from vecload.text.parse_pool import ParserPool\n"  # no __main__ guard, as a user's script
        "print(ParserPool().parse('a', b'TRICKY fine').text, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[-1])
        assert is_running(pid)
        parent.send_signal(signal.SIGKILL)
    wait_until_gone(pid)
