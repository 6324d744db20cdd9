from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vecload.documents import Point
from vecload.errors import LedgerError
from vecload.ledger import ContainerRow, DeadLetter, DocumentRow, Ledger, RunLock, Scope


def ids(*numbers: int) -> tuple[bytes, ...]:
    return tuple(bytes([n]) * 16 for n in numbers)


def hashes(*numbers: int) -> tuple[bytes, ...]:
    return tuple(bytes([n]) * 8 for n in numbers)


def row(key: str, *numbers: int, text: bytes | None = None, container: str | None = None) -> DocumentRow:
    return DocumentRow(
        key=key,
        container=container or key,
        content_hash=b"c" * 16,
        text_hash=text or key.encode().ljust(16, b"_"),
        ids=ids(*numbers),
        payload_hashes=hashes(*numbers),
    )


def fresh(document: DocumentRow) -> DocumentRow:
    return replace(document, fresh=True)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(tmp_path / "ledger.db")
    yield opened
    opened.close()


@pytest.fixture
def scope(ledger: Ledger) -> Scope:
    made = ledger.scope("incarnation", "sink", "source")
    made.begin_run()
    return made


def filled(scope: Scope, *rows: DocumentRow) -> None:
    scope.finish_writing(rows)
    scope.containers_done([ContainerRow(r.container, "tag", 1, {}) for r in rows])


def next_run(ledger: Ledger, listed: list[str]) -> Scope:
    scope = ledger.scope("incarnation", "sink", "source")
    scope.begin_run()
    scope.containers(listed)
    return scope


def test_a_document_comes_back_as_it_was(scope: Scope) -> None:
    filled(scope, row("a", 1, 2, 3))
    assert scope.documents(["a", "b"]) == {"a": row("a", 1, 2, 3)}
    assert scope.containers(["a"])["a"] == ContainerRow("a", "tag", 1, {})


def test_more_keys_than_a_statement_takes(scope: Scope) -> None:
    rows = [row(f"d{n:04}", n % 256) for n in range(1700)]
    filled(scope, *rows)
    assert len(scope.documents([r.key for r in rows])) == 1700


def test_writing_forgets_the_containers_tag(scope: Scope) -> None:
    """Else a source that goes back to its old state after a kill would never be read again."""
    filled(scope, row("a", 1))
    scope.begin_writing([row("a", 2)])
    assert scope.containers(["a"])["a"].tag is None


def test_another_incarnation_knows_nothing(ledger: Ledger, scope: Scope) -> None:
    filled(scope, row("a", 1))
    other = ledger.scope("another", "sink", "source")
    assert other.is_new
    assert other.documents(["a"]) == {}
    assert ledger.points("incarnation") == 0


def test_two_sources_of_a_collection_are_apart(ledger: Ledger, scope: Scope) -> None:
    filled(scope, row("readme.md", 1))
    other = ledger.scope("incarnation", "sink", "other source")
    other.begin_run()
    assert other.documents(["readme.md"]) == {}
    assert other.find_vanished().total == 0
    assert ledger.points("incarnation") == 1


class TestVanished:
    def test_what_is_not_listed(self, ledger: Ledger, scope: Scope) -> None:
        filled(scope, row("a", 1), row("b", 2), row("c", 3))
        found = next_run(ledger, ["a", "c"]).find_vanished()
        assert (found.total, found.gone, found.moved) == (3, 1, 0)

    def test_what_a_container_no_longer_yields(self, ledger: Ledger, scope: Scope) -> None:
        filled(scope, row("a", 1, container="table"), row("b", 2, container="table"))
        second = next_run(ledger, ["table"])
        assert second.find_vanished().gone == 0  # listed, and not read
        second.see_documents(["a"])
        assert second.find_vanished().gone == 0  # not read to its end
        second.containers_read(["table"])
        assert second.find_vanished().gone == 1

    def test_a_document_that_went_to_another_container(self, ledger: Ledger, scope: Scope) -> None:
        filled(scope, row("a", 1, container="x"))
        second = next_run(ledger, ["y"])
        second.see_documents(["a"])
        assert second.find_vanished().gone == 0

    def test_a_rename_is_no_delete(self, ledger: Ledger, scope: Scope) -> None:
        filled(scope, row("old", 1, text=b"t" * 16))
        second = next_run(ledger, ["new"])
        filled(second, fresh(row("new", 2, text=b"t" * 16)))
        found = second.find_vanished()
        assert (found.gone, found.moved) == (0, 1)
        second.mark_vanished_deleting(moved_only=True)
        [[pending]] = list(second.pending_deletes())
        assert (pending.key, pending.stale, pending.ids) == ("old", ids(1), ())

    def test_the_last_copy_that_goes_with_the_first_is_no_rename(self, ledger: Ledger, scope: Scope) -> None:
        filled(scope, row("one", 1, text=b"t" * 16), row("two", 2, text=b"t" * 16), row("three", 3))
        found = next_run(ledger, ["three"]).find_vanished()
        assert (found.gone, found.moved) == (2, 0)

    def test_one_of_two_copies_goes(self, ledger: Ledger, scope: Scope) -> None:
        filled(scope, row("one", 1, text=b"t" * 16), row("two", 2, text=b"t" * 16))
        second = next_run(ledger, ["two", "unrelated"])
        filled(second, fresh(row("unrelated", 3)))
        found = second.find_vanished()
        assert (found.gone, found.moved) == (1, 0)

    def test_many_copies_do_not_go_for_one_new_one(self, ledger: Ledger, scope: Scope) -> None:
        """Each new document with a text accounts for one that vanished, not for all that had it."""
        filled(scope, *(row(f"old{n}", n, text=b"t" * 16) for n in range(40)))
        second = next_run(ledger, ["old0", "new"])
        filled(second, fresh(row("new", 200, text=b"t" * 16)))
        found = second.find_vanished()
        assert (found.gone, found.moved) == (38, 1)
        assert len(second.vanished_keys(5)) == 5

    def test_what_was_fresh_is_settled(self, ledger: Ledger, scope: Scope) -> None:
        filled(scope, fresh(row("one", 1, text=b"t" * 16)), fresh(row("two", 2, text=b"t" * 16)))
        scope.settle_fresh()
        found = next_run(ledger, ["two"]).find_vanished()
        assert (found.gone, found.moved) == (1, 0)

    def test_a_half_written_document_goes_with_all_its_points(self, ledger: Ledger, scope: Scope) -> None:
        filled(scope, row("a", 1), row("b", 9))
        scope.begin_writing(
            [DocumentRow("a", "a", "writing", ids=ids(2, 3), payload_hashes=hashes(2, 3), stale=ids(1))]
        )
        second = next_run(ledger, ["b"])
        second.find_vanished()
        second.mark_vanished_deleting(moved_only=False)
        [[pending]] = list(second.pending_deletes())
        assert set(pending.stale) == set(ids(1, 2, 3))
        second.deleted([pending])
        assert second.documents(["a"]) == {}
        assert list(second.pending_deletes()) == []

    def test_withheld_containers_are_read_again(self, ledger: Ledger, scope: Scope) -> None:
        filled(scope, row("a", 1, container="table"))
        second = next_run(ledger, ["table"])
        second.containers_read(["table"])
        assert second.find_vanished().gone == 1
        second.keep_vanished()
        assert second.containers(["table"])["table"].tag is None


@pytest.mark.parametrize("renamed", [True, False])
def test_looking_for_vanished_documents_is_linear(tmp_path: Path, renamed: bool) -> None:
    """Counted in steps of SQLite's virtual machine, which do not depend on the machine that it runs on."""

    def steps(documents: int) -> int:
        ledger = Ledger.open(tmp_path / f"{documents}.db")
        scope = ledger.scope("incarnation", "sink", "source")
        scope.begin_run()
        texts = [n.to_bytes(16, "big") for n in range(documents)]
        filled(scope, *(row(f"old/{n}", n % 256, text=text) for n, text in enumerate(texts)))
        second = next_run(ledger, [f"new/{n}" if renamed else f"old/{n}" for n in range(documents)])
        if renamed:
            filled(second, *(fresh(row(f"new/{n}", n % 256, text=text)) for n, text in enumerate(texts)))
        taken = 0

        def count() -> int:
            nonlocal taken
            taken += 1
            return 0

        with ledger.transaction() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.set_progress_handler(count, 1000)
        found = second.find_vanished()
        ledger.close()
        assert found.moved == (documents if renamed else 0)
        return taken

    assert steps(4000) < 3 * steps(2000)


def test_stale_points_stay_pending_until_they_are_deleted(scope: Scope) -> None:
    changed = row("a", 2)
    stale = DocumentRow("a", "a", "deleting", changed.content_hash, changed.text_hash, ids(2), hashes(2), stale=ids(1))
    scope.finish_writing([stale])
    assert list(scope.pending_deletes()) == [[stale]]
    scope.deleted([stale])
    assert scope.documents(["a"])["a"] == changed


def test_a_lost_ledger_is_rebuilt_from_payloads(scope: Scope) -> None:
    def point(number: int, document: str, ordinal: int) -> Point:
        payload = {"document": document, "ordinal": ordinal, "text_hash": f"{number:032x}", "text": "…"}
        return Point(bytes([number]) * 16, payload)  # type: ignore[arg-type]  # a dict literal is invariant

    assert scope.rebuild([point(2, "a", 1), point(7, "b", 0), point(1, "a", 0)]) == 2
    found = scope.documents(["a", "b"])
    assert found["a"].ids == ids(1, 2)
    assert found["b"].ids == ids(7)
    assert found["a"].content_hash is None


def test_copies_are_found_across_the_sources_of_a_collection(ledger: Ledger, scope: Scope) -> None:
    filled(scope, row("a", 1, 2, text=b"t" * 16))
    other = ledger.scope("incarnation", "sink", "other")
    assert other.copies([b"t" * 16, b"u" * 16]) == {b"t" * 16: ids(1, 2)}
    scope.begin_writing([DocumentRow("a", "a", "writing")])
    assert other.copies([b"t" * 16]) == {}


class TestDeadLetters:
    LETTER = DeadLetter("a", "a", "parse", "broken", "It is broken.")

    def test_attempts_count(self, ledger: Ledger, scope: Scope) -> None:
        scope.bury([self.LETTER])
        scope.bury([self.LETTER])
        [letter] = ledger.dead_letters()
        assert (letter.document, letter.reason, letter.attempts, letter.chunk) == ("a", "broken", 2, None)

    def test_they_leave_when_the_document_is_written(self, scope: Scope) -> None:
        scope.bury([self.LETTER])
        scope.finish_writing([row("a", 1)])
        assert scope.dead_letter_count() == 0

    def test_they_stay_while_their_container_is_unchanged(self, ledger: Ledger, scope: Scope) -> None:
        scope.bury([self.LETTER])
        scope.containers_done([ContainerRow("a", "tag", 1, {})])
        second = next_run(ledger, ["a"])
        second.forget_unlisted()
        assert second.dead_letter_count() == 1

    def test_they_leave_with_their_container(self, ledger: Ledger, scope: Scope) -> None:
        scope.bury([self.LETTER])
        second = next_run(ledger, ["b"])
        second.forget_unlisted()
        assert second.dead_letter_count() == 0


def test_the_summary_counts(ledger: Ledger, scope: Scope) -> None:
    filled(scope, row("a", 1, 2), row("b", 3))
    scope.end_run()
    [summary] = ledger.summary()
    assert (summary.sink, summary.source, summary.documents, summary.chunks) == ("sink", "source", 2, 3)
    assert summary.last_run


def test_one_run_at_a_time(tmp_path: Path) -> None:
    held = RunLock(tmp_path / "ledger.db", "sink", "source")
    with pytest.raises(LedgerError, match="Another run"):
        RunLock(tmp_path / "ledger.db", "sink", "source")
    RunLock(tmp_path / "ledger.db", "sink", "other").close()
    held.close()
    RunLock(tmp_path / "ledger.db", "sink", "source").close()


@pytest.mark.parametrize("content", [b"this is no database, it is a text file of some length" * 20])
def test_a_file_that_is_no_ledger(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ledger.db").write_bytes(content)
    with pytest.raises(LedgerError, match=r"ledger\.db cannot be opened"):
        Ledger.open(tmp_path / "ledger.db")


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE theirs (a)")
    with pytest.raises(LedgerError, match="another program"):
        Ledger.open(tmp_path / "other.db")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


def test_a_newer_ledger_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        connection.exec_driver_sql("UPDATE vecload SET version = 99")
    with pytest.raises(LedgerError, match="newer vecload"):
        Ledger.open(tmp_path / "ledger.db")
