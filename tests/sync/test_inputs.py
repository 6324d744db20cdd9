"""Inputs that are no plain documents: each ends as skipped or as a dead letter with its reason, the rest goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.world import World, prose
from vecload.documents import Document
from vecload.ledger import Ledger


def reasons(world: World) -> dict[str, str]:
    ledger = Ledger.open(world.ledger)
    try:
        return {letter.document: letter.reason for letter in ledger.dead_letters()}
    finally:
        ledger.close()


def texts(world: World) -> dict[str, str]:
    return {str((p.payload or {})["document"]): str((p.payload or {})["text"]) for p in world.points()}


@pytest.mark.parametrize("content", [b"", b" ", b"\n", b"\xef\xbb\xbf"])
def test_nothing_to_embed_is_skipped_counted_and_remembered(world: World, content: bytes) -> None:
    world.write("empty.txt", content)
    world.write("good.txt", "Something.")
    report = world.sync()
    assert report.exit_code == 0
    assert sum(report.skipped.values()) == 1
    assert world.documents() == {"good.txt"}
    second = world.sync()
    assert (second.documents.read, second.skipped, second.documents.listed) == (0, report.skipped, 2)


def test_nul_never_reaches_the_store(world: World) -> None:
    world.sync([Document("a\0b", "one\0two", metadata={"na\0me": "va\0lue", "list": ["x\0"]})])
    [point] = world.points()
    payload = point.payload or {}
    assert payload["text"] == "onetwo"
    assert payload["metadata"] == {"name": "value", "list": ["x"]}
    assert payload["document"] == '"a\\u0000b"'


def test_lone_surrogates_never_reach_the_store(world: World) -> None:
    world.sync([Document("a\ud800", "one \ud800 two", metadata={"k": "\udfff"})])
    [point] = world.points()
    assert (point.payload or {})["text"] == "one \ufffd two"


def test_encodings(world: World) -> None:
    latin = "Où est passée la cérémonie d'été à la forêt de Fontainebleau, près du château ?"
    world.write("latin.txt", latin.encode("latin-1"))
    world.write("utf16.txt", "Grüße aus München".encode("utf-16"))
    world.write("bom.txt", "With a mark".encode("utf-8-sig"))
    assert world.sync().exit_code == 0
    assert texts(world) == {"latin.txt": latin, "utf16.txt": "Grüße aus München", "bom.txt": "With a mark"}


def test_a_line_of_five_megabytes(world: World) -> None:
    line = " ".join(f"word{n}" for n in range(560_000))[: 5 << 20]
    world.write("line.txt", line)
    world.write("good.txt", "Something.")
    report = world.sync()
    assert report.exit_code == 0
    assert world.documents() == {"good.txt", "line.txt"}
    points = [p.payload or {} for p in world.points()]
    last = max(int(p["end"]) for p in points if p["document"] == "line.txt")  # type: ignore[arg-type]  # Json integers
    assert last >= len(line) - 1


def test_pdf_without_text_and_broken_ones(world: World) -> None:
    blank = (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "
        b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
    )
    world.write("blank.pdf", blank)
    world.write("broken.pdf", b"%PDF-1.7\n garbage \xff\xfe")
    world.write("lies.txt", b"%PDF-1.7\n garbage under another name")
    world.write("good.md", prose(1))
    report = world.sync()
    assert report.exit_code == 3
    assert report.skipped == {"no_text": 1}
    assert reasons(world) == {"broken.pdf": "broken", "lies.txt": "broken"}
    assert world.documents() == {"good.md"}
    second = world.sync()
    assert (second.exit_code, second.documents.read, second.dead_letters) == (3, 0, 2)


def test_binary_files_are_dead_letters(world: World) -> None:
    world.write("image.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8)
    assert world.sync().exit_code == 3
    assert reasons(world) == {"image.png": "binary"}


def test_too_large_is_not_even_read(world: World) -> None:
    world.write("large.txt", "x" * 5000)
    world.write("good.txt", "Something.")
    report = world.sync(settings={"source": {"max_document_bytes": 4096}})
    assert (report.exit_code, report.documents.new) == (3, 1)
    assert reasons(world) == {"large.txt": "too_large"}


def test_a_fifo_blocks_nothing_and_a_loop_ends(world: World) -> None:
    world.write("sub/good.txt", "Something.")
    os.mkfifo(world.docs / "pipe")
    (world.docs / "sub" / "loop").symlink_to(world.docs, target_is_directory=True)
    (world.docs / "dangling.txt").symlink_to(world.docs / "nothing")
    report = world.sync()
    assert report.exit_code == 0
    assert world.documents() == {"sub/good.txt"}
    assert sum(report.skipped.values()) == 3


def test_a_link_out_of_the_root_is_not_followed(world: World) -> None:
    (world.folder / "secret.txt").write_text("Not yours.")
    (world.docs / "link.txt").symlink_to(world.folder / "secret.txt")
    world.write("good.txt", "Something.")
    world.sync()
    assert world.documents() == {"good.txt"}


UNPRIVILEGED = """
import sys
from pathlib import Path
from tests.world import World
world = World(Path(sys.argv[1]))
world.sync()
(world.docs / "closed").chmod(0)
(world.docs / "secret.txt").chmod(0)
(world.docs / "gone.txt").unlink()
report = world.sync()
print(report.exit_code, report.documents.deleted, report.documents.failed, sorted(world.documents()))
"""


def test_unreadable_things_delete_nothing(world: World) -> None:
    world.write("closed/inside.txt", "Inside a closed folder.")
    world.write("secret.txt", "Not readable later.")
    world.write("gone.txt", "Gone later.")
    world.write("good.txt", "Something.")
    # Root reads everything, unless it goes without the capabilities that let it.
    prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    try:
        done = subprocess.run(
            [*prefix, sys.executable, "-c", UNPRIVILEGED, str(world.folder)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        (world.docs / "closed").chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "3 0 1 ['closed/inside.txt', 'gone.txt', 'good.txt', 'secret.txt']"
