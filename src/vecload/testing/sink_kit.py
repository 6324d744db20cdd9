"""The conformance suite of sinks: what the core relies on, for any store.

A third party subclasses it in a test module; pytest collects the inherited tests:

    class TestMySink(SinkConformance):
        def open_sink(self, collection: str) -> Sink:
            return MY_SINK.open(MySettings(url="..."), collection)

`open_sink` is called again, with the same name, to open the same collection anew; the sinks that a test opened are
closed after it. Each test uses a collection of its own.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from vecload.contracts import CollectionRecord, Sink, VectorSpace
from vecload.documents import Json, Point, VectorBatch, point_id, text_hash
from vecload.errors import RejectedError

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix

DIMENSIONS = 8


def make_record(dimensions: int = DIMENSIONS) -> CollectionRecord:
    """A record with a fresh incarnation."""
    space = VectorSpace(
        model="test/模型",
        model_hash="0" * 64,
        pooling="mean",
        normalize=True,
        dimensions=dimensions,
        document_prompt="",
        query_prompt="query: ",
    )
    return CollectionRecord(incarnation=uuid.uuid4().hex, space=space, probes="AACAPw==", vecload="0.0.0")


def make_payload(
    text: str, document: str = "guide.md", source: str = "docs", metadata: dict[str, Json] | None = None
) -> dict[str, Json]:
    return {
        "text": text,
        "source": source,
        "document": document,
        "ordinal": 0,
        "start": 0,
        "end": len(text),
        "headings": ["Guide", "Getting started"],
        "text_hash": text_hash(text),
        "metadata": metadata or {},
    }


def make_batch(texts: list[str], document: str = "guide.md", source: str = "docs", seed: int = 0) -> VectorBatch:
    """One point a text, with random unit vectors that depend on `seed` alone."""
    vectors = np.random.default_rng(seed).normal(size=(len(texts), DIMENSIONS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = [point_id(source, document, text_hash(text), 0) for text in texts]
    return VectorBatch(ids, vectors, [make_payload(text, document, source) for text in texts])


HARD_PAYLOAD = make_payload(
    "Grüße, 你好, 👩‍🚀, \"quoted\" \\ back\nnew\tline 'x' %s {y}",
    metadata={
        "empty list": [],
        "empty object": {},
        "null": None,
        "yes": True,
        "no": False,
        "largest": 2**63 - 1,
        "smallest": -(2**63),
        "float": 0.1,
        "whole float": 3.0,
        "large float": 1.2345678901234567e18,
        "huge float": 1.7976931348623157e308,
        "tiny float": 5e-324,
        "text that looks like a number": "1e+20",
        "nested": {"列": [1, [2.5, None, {"a.b": "c"}], "x"], "": "empty key"},
        "dotted.key": "d",
        "long": "ab" * 10_000,
    },
)


def by_id(points: Iterator[Point] | list[Point]) -> dict[bytes, Point]:
    found = list(points)
    result = {point.id: point for point in found}
    assert len(result) == len(found), "a point came twice"
    return result


def assert_vectors(found: dict[bytes, Point], ids: Sequence[bytes], wanted: FloatMatrix) -> None:
    for wanted_id, row in zip(ids, wanted, strict=True):
        vector = found[wanted_id].vector
        assert vector is not None
        assert vector.dtype == np.float32
        np.testing.assert_allclose(vector, row, atol=1e-6)


def same_types(left: Json, right: Json) -> bool:
    """Equal, and 3 is not 3.0: the payload's hash tells them apart."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_types(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_types, left, right))
    return type(left) is type(right) and left == right


class SinkConformance:
    """Subclass it, and give `open_sink`."""

    def open_sink(self, collection: str) -> Sink:
        raise NotImplementedError

    @pytest.fixture
    def sinks(self) -> Iterator[SinkOpener]:
        opener = SinkOpener(self)
        yield opener
        opener.close()

    @pytest.fixture
    def sink(self, sinks: SinkOpener) -> Sink:
        """A sink on a collection that was just made."""
        sink = sinks.open()
        sink.create(make_record())
        return sink

    # ---- the collection and its record

    def test_no_collection_has_no_record(self, sinks: SinkOpener) -> None:
        assert sinks.open().inspect() is None

    def test_inspect_creates_nothing(self, sinks: SinkOpener) -> None:
        sinks.open().inspect()
        assert sinks.reopen().inspect() is None

    def test_record_survives_reopening(self, sinks: SinkOpener) -> None:
        record = make_record()
        sink = sinks.open()
        sink.create(record)
        assert sink.inspect() == record
        assert sinks.reopen().inspect() == record

    def test_save_record_replaces_it(self, sink: Sink, sinks: SinkOpener) -> None:
        record = make_record()
        sink.save_record(record)
        assert sink.inspect() == record
        assert sinks.reopen().inspect() == record

    def test_create_again_keeps_the_points(self, sink: Sink) -> None:
        sink.upsert(make_batch(["a", "b"]))
        record = make_record()
        sink.create(record)
        assert sink.inspect() == record
        assert sink.count() == 2

    def test_two_collections_do_not_mix(self, sink: Sink, sinks: SinkOpener) -> None:
        first = make_batch(["a"])
        sink.upsert(first)
        second = sinks.open_another()
        assert second.inspect() is None
        second.create(make_record())
        second.upsert(make_batch(["b", "c"]))
        second.delete(first.ids)
        assert second.count() == 2
        assert by_id(sinks.reopen().scan()).keys() == set(first.ids)

    # ---- writing

    def test_upsert_then_fetch_gives_the_same(self, sink: Sink) -> None:
        batch = make_batch(["first", "second", "third"])
        sink.upsert(batch)
        found = by_id(sink.fetch(batch.ids, vectors=True))
        assert found.keys() == set(batch.ids)
        assert_vectors(found, batch.ids, batch.vectors)
        assert [found[i].payload for i in batch.ids] == batch.payloads

    def test_payload_survives_exactly(self, sink: Sink, sinks: SinkOpener) -> None:
        batch = make_batch(["x"])
        sink.upsert(VectorBatch(batch.ids, batch.vectors, [HARD_PAYLOAD]))
        for reopened in (False, True):
            (point,) = (sinks.reopen() if reopened else sink).fetch(batch.ids)
            assert point.payload is not None
            assert point.payload == HARD_PAYLOAD
            assert same_types(point.payload, HARD_PAYLOAD)

    def test_upsert_again_makes_no_doubles(self, sink: Sink) -> None:
        sink.upsert(make_batch(["a", "b", "c"]))
        again = make_batch(["a", "b", "c"], seed=1)
        sink.upsert(again)
        assert sink.count() == 3
        found = by_id(sink.fetch(again.ids, vectors=True))
        assert_vectors(found, again.ids, again.vectors)

    def test_same_id_twice_in_one_batch_the_last_wins(self, sink: Sink) -> None:
        batch = make_batch(["a", "b", "c"])
        doubled = VectorBatch([batch.ids[0], batch.ids[1], batch.ids[0]], batch.vectors, batch.payloads)
        sink.upsert(doubled)
        assert sink.count() == 2
        found = by_id(sink.fetch([batch.ids[0]], vectors=True))
        assert found[batch.ids[0]].payload == batch.payloads[2]
        assert_vectors(found, [batch.ids[0]], batch.vectors[2:])

    def test_update_payload_leaves_the_vector(self, sink: Sink) -> None:
        batch = make_batch(["a", "b", "c"])
        sink.upsert(batch)
        moved = [
            make_payload("a", document="moved.md", metadata={"tag": "new"}),
            make_payload("b", document="moved.md"),
        ]
        sink.update_payload(batch.ids[:2], moved)
        found = by_id(sink.fetch(batch.ids, vectors=True))
        assert [found[i].payload for i in batch.ids] == [*moved, batch.payloads[2]]
        assert_vectors(found, batch.ids, batch.vectors)

    def test_update_payload_of_an_absent_point_makes_none(self, sink: Sink) -> None:
        batch = make_batch(["here", "absent"])
        sink.upsert(VectorBatch(batch.ids[:1], batch.vectors[:1], batch.payloads[:1]))
        sink.update_payload(batch.ids[::-1], [make_payload("absent"), make_payload("here", metadata={"tag": "new"})])
        assert by_id(sink.scan()).keys() == {batch.ids[0]}
        assert sink.fetch(batch.ids)[0].payload == make_payload("here", metadata={"tag": "new"})

    def test_delete_ignores_absent_ids(self, sink: Sink) -> None:
        batch = make_batch(["a", "b", "c"])
        absent = make_batch(["never written"]).ids
        sink.upsert(batch)
        sink.delete([batch.ids[0], *absent])
        sink.delete([batch.ids[0]])
        assert by_id(sink.scan()).keys() == set(batch.ids[1:])
        assert sink.count() == 2

    def test_nothing_to_do_is_no_error(self, sink: Sink) -> None:
        sink.upsert(make_batch([]))
        sink.update_payload([], [])
        sink.delete([])
        assert sink.fetch([]) == []
        assert list(sink.scan()) == []
        assert sink.count() == 0

    def test_writes_survive_reopening(self, sink: Sink, sinks: SinkOpener) -> None:
        batch = make_batch([f"text {i}" for i in range(20)])
        sink.upsert(batch)
        sink.update_payload(batch.ids[:1], [make_payload("text 0", metadata={"tag": "kept"})])
        sink.delete(batch.ids[10:])
        again = sinks.reopen()
        found = by_id(again.fetch(batch.ids, vectors=True))
        assert found.keys() == set(batch.ids[:10])
        assert found[batch.ids[0]].payload == make_payload("text 0", metadata={"tag": "kept"})
        assert_vectors(found, batch.ids[:10], batch.vectors[:10])

    def test_wrong_width_is_rejected_and_harms_nothing(self, sink: Sink) -> None:
        good = make_batch(["good"])
        bad = make_batch(["bad"])
        with pytest.raises(RejectedError):
            sink.upsert(VectorBatch(bad.ids, bad.vectors[:, :4], bad.payloads))
        sink.upsert(good)
        assert by_id(sink.scan()).keys() == set(good.ids)

    def test_several_threads_write(self, sink: Sink) -> None:
        batches = [
            make_batch([f"{n} {i}" for i in range(50)], document=f"{n}.md", seed=n)
            for n in range(2 * sink.capabilities.concurrent_writers)
        ]
        errors: list[BaseException] = []

        def write(batch: VectorBatch) -> None:
            try:
                sink.upsert(batch)
                sink.update_payload(batch.ids[:1], batch.payloads[:1])
                sink.delete(batch.ids[-1:])
                assert len(sink.fetch(batch.ids)) == 49
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=write, args=(batch,)) for batch in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert by_id(sink.scan()).keys() == {i for batch in batches for i in batch.ids[:-1]}

    # ---- reading

    def test_fetch_gives_those_that_exist(self, sink: Sink) -> None:
        batch = make_batch(["a", "b"])
        sink.upsert(batch)
        points = sink.fetch([batch.ids[0], make_batch(["absent"]).ids[0]], payloads=False)
        assert [point.id for point in points] == [batch.ids[0]]
        assert points[0].payload is None
        assert points[0].vector is None

    def test_fetch_of_more_ids_than_one_request_takes(self, sink: Sink) -> None:
        batch = make_batch([f"text {i}" for i in range(1_500)])
        for start in range(0, 1_500, 500):
            end = start + 500
            sink.upsert(VectorBatch(batch.ids[start:end], batch.vectors[start:end], batch.payloads[start:end]))
        assert by_id(sink.fetch(batch.ids, payloads=False)).keys() == set(batch.ids)
        assert by_id(sink.scan()).keys() == set(batch.ids)

    def test_scan_of_a_source_and_of_a_document(self, sink: Sink) -> None:
        names = [("docs", "a.md"), ("docs", "b.md"), ("wiki", "a.md"), ("it's %s", 'ключ "1"')]
        batches = {
            (source, document): make_batch(["one", "two"], document, source, seed=i)
            for i, (source, document) in enumerate(names)
        }
        for batch in batches.values():
            sink.upsert(batch)
        everything = by_id(sink.scan())
        assert everything.keys() == {i for batch in batches.values() for i in batch.ids}
        assert all(
            point.payload is not None and point.payload["text"] in ("one", "two") for point in everything.values()
        )
        for name, batch in batches.items():
            assert by_id(sink.scan(*name)).keys() == set(batch.ids)
        docs = set(batches["docs", "a.md"].ids) | set(batches["docs", "b.md"].ids)
        assert by_id(sink.scan("docs")).keys() == docs
        assert list(sink.scan("docs", "absent.md")) == []

    def test_scan_may_be_left_early_and_written_under(self, sink: Sink) -> None:
        batch = make_batch([f"text {i}" for i in range(30)])
        sink.upsert(batch)
        first = list(itertools.islice(sink.scan(), 5))
        scan = sink.scan()
        next(scan)
        sink.delete([point.id for point in first])
        assert sink.count() == 25

    def test_search_finds_the_nearest_first(self, sink: Sink) -> None:
        batch = make_batch([f"text {i}" for i in range(30)])
        sink.upsert(batch)
        query = batch.vectors[7]
        hits = sink.search(query, 5)
        cosines = batch.vectors @ query
        wanted = np.argsort(-cosines)[:5]
        assert [hit.id for hit in hits] == [batch.ids[i] for i in wanted]
        np.testing.assert_allclose([hit.score for hit in hits], cosines[wanted], atol=1e-5)
        assert hits[0].payload == batch.payloads[7]

    def test_search_with_a_filter(self, sink: Sink) -> None:
        batch = make_batch(["a", "b", "c", "d"])
        languages: list[Json] = ["de", "en", "o'\"e", None]
        payloads = [
            make_payload(
                "t", f"{i}.md", metadata={"language": languages[i], "page no": i, "draft": i == 1, "weight": i / 4}
            )
            for i in range(4)
        ]
        sink.upsert(VectorBatch(batch.ids, batch.vectors, payloads))

        def found(**equal: Json) -> set[int]:
            conditions = {key.replace("__", ".").replace("~", " "): value for key, value in equal.items()}
            return {batch.ids.index(hit.id) for hit in sink.search(batch.vectors[0], 10, conditions)}

        assert found() == {0, 1, 2, 3}
        assert found(document="1.md") == {1}
        assert found(source="docs", document="2.md") == {2}
        assert found(source="other") == set()
        assert found(metadata__language="en") == {1}
        assert found(metadata__language="o'\"e") == {2}
        assert found(metadata__draft=True) == {1}
        assert found(metadata__weight=0.75) == {3}
        assert found(metadata__language=None) == {3}
        assert found(**{"metadata__page~no": 2}) == {2}
        assert found(metadata__language="en", source="docs") == {1}


class SinkOpener:
    """Opens the collection of one test, and closes what was opened."""

    def __init__(self, suite: SinkConformance) -> None:
        self._suite = suite
        self._name = f"kit-{uuid.uuid4().hex[:12]}"
        self._open: list[Sink] = []

    def open(self) -> Sink:
        return self._keep(self._name)

    def reopen(self) -> Sink:
        """Closes everything and opens the same collection anew."""
        self.close()
        return self._keep(self._name)

    def open_another(self) -> Sink:
        """Closes everything and opens another collection of the same store."""
        self.close()
        return self._keep(self._name + "-2")

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def _keep(self, name: str) -> Sink:
        sink = self._suite.open_sink(name)
        self._open.append(sink)
        return sink
