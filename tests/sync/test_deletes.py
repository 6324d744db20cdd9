"""Nothing is deleted by mistake."""

from __future__ import annotations

import shutil

import pytest

import vecload
from tests.world import World, prose


def test_an_empty_listing_deletes_nothing(world: World) -> None:
    world.write_many(60, parts=1)
    world.sync()
    before = world.points()
    for path in world.docs.iterdir():
        path.unlink()
    report = world.sync()
    assert (report.exit_code, report.documents.withheld, report.documents.deleted) == (3, 60, 0)
    assert "--allow-delete 60" in (report.next_command or "")
    assert world.points() == before


@pytest.mark.parametrize("count", [1, 9])
def test_few_documents_that_all_go_are_withheld_too(world: World, count: int) -> None:
    world.write_many(count, parts=1)
    world.sync()
    shutil.rmtree(world.docs)
    world.docs.mkdir()
    report = world.sync()
    assert (report.exit_code, report.documents.withheld, report.documents.deleted) == (3, count, 0)
    assert len(world.documents()) == count


def test_a_missing_directory_touches_nothing(world: World) -> None:
    world.write_many(3)
    world.sync()
    before = world.points()
    shutil.rmtree(world.docs)
    with pytest.raises(vecload.VecloadError, match="docs") as caught:
        world.sync()
    assert caught.value.exit_code == 1
    assert world.points() == before


@pytest.mark.parametrize(("gone", "deleted"), [(10, 10), (11, 0)])
def test_the_border_of_ten(world: World, gone: int, deleted: int) -> None:
    world.write_many(60, parts=1)
    world.sync()
    for number in range(gone):
        (world.docs / f"doc{number:03}.md").unlink()
    report = world.sync()
    assert (report.documents.deleted, report.documents.withheld) == (deleted, gone - deleted)
    assert report.exit_code == (0 if deleted else 3)


def test_ten_percent_may_go(world: World) -> None:
    world.write_many(200, parts=1)
    world.sync()
    for number in range(20):
        (world.docs / f"doc{number:03}.md").unlink()
    assert world.sync().documents.deleted == 20


def test_withheld_deletes_stay_withheld_and_then_are_allowed(world: World) -> None:
    world.write_many(30, parts=1)
    world.sync()
    for number in range(20):
        (world.docs / f"doc{number:03}.md").unlink()
    assert world.sync().exit_code == 3
    assert world.sync().documents.withheld == 20
    assert world.sync(allow_delete=19).documents.deleted == 0
    report = world.sync(allow_delete=20)
    assert (report.exit_code, report.documents.deleted, len(world.documents())) == (0, 20, 10)


def test_no_delete_keeps_the_vanished(world: World) -> None:
    world.write_many(5, parts=1)
    world.sync()
    (world.docs / "doc001.md").unlink()
    report = world.sync(delete=False)
    assert (report.exit_code, report.documents.deleted, len(world.documents())) == (0, 0, 5)
    assert world.sync().documents.deleted == 1


def test_a_file_that_came_back_is_not_deleted(world: World) -> None:
    world.write_many(30, parts=1)
    world.sync()
    for number in range(20):
        (world.docs / f"doc{number:03}.md").unlink()
    world.sync()
    world.write_many(30, parts=1)
    report = world.sync()
    assert (report.exit_code, report.documents.withheld, report.chunks.embedded) == (0, 0, 0)


def test_files_cut_to_nothing_are_a_listing_that_went_wrong(world: World) -> None:
    """A full disk truncates files; their documents are not given up for that."""
    world.write_many(30, parts=1)
    world.sync()
    for path in world.docs.iterdir():
        path.write_bytes(b"")
    report = world.sync()
    assert (report.exit_code, report.documents.withheld, report.documents.deleted) == (3, 30, 0)
    assert world.sync().documents.withheld == 30
    assert len(world.documents()) == 30


def test_one_file_cut_to_nothing_loses_its_points(world: World) -> None:
    world.write_many(5, parts=1)
    world.sync()
    world.write("doc002.md", "")
    report = world.sync()
    assert (report.exit_code, report.documents.deleted, report.skipped) == (0, 1, {"empty": 1})
    assert "doc002.md" not in world.documents()


def test_a_document_that_fails_now_keeps_its_points(world: World) -> None:
    world.write_many(3, parts=1)
    world.write("page.html", "<html><body><p>Text that is worth keeping.</p></body></html>")
    world.sync()
    world.write("page.html", b"%PDF-1.7\nthis is no PDF")
    report = world.sync()
    assert (report.exit_code, report.documents.failed, report.dead_letters) == (3, 1, 1)
    assert "page.html" in world.documents()
    world.write("page.html", prose(5))
    assert world.sync().exit_code == 0


def test_copies_that_go_are_deletes_like_others(world: World) -> None:
    """Their text stands elsewhere, and still somebody has to want this."""
    for number in range(40):
        world.write(f"v1/{number}.md", prose(number, 1))
        world.write(f"v2/{number}.md", prose(number, 1))
    world.sync()
    shutil.rmtree(world.docs / "v2")
    report = world.sync()
    assert (report.exit_code, report.documents.withheld, report.documents.deleted) == (3, 40, 0)
    assert len(world.documents()) == 80


def test_a_rename_that_was_killed_before_its_deletes_is_still_a_rename(world: World) -> None:
    world.write_many(30, "old/", parts=1)
    world.sync()
    (world.docs / "old").rename(world.docs / "new")
    world.sync(delete=False)  # stands where a killed run stands: the new are written, the old not deleted
    report = world.sync()
    assert (report.exit_code, report.documents.withheld) == (0, 0)
    assert world.documents() == {f"new/doc{n:03}.md" for n in range(30)}
