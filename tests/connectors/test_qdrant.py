"""What is Qdrant's own: the folder's lock and durability, aliases, and how errors are told apart."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc  # type: ignore[import-untyped]  # grpcio ships no types
import numpy as np
import pytest
from pydantic import SecretStr
from qdrant_client import QdrantClient, models

from tests.servers.qdrant_grpc import Failure, WireServer, wire_server
from vecload.contracts import Sink
from vecload.documents import VectorBatch
from vecload.errors import RefusedError, RejectedError, SinkError, UsageError
from vecload.testing.sink_kit import DIMENSIONS, assert_vectors, by_id, make_batch, make_payload, make_record
from vecload_connectors.sinks.qdrant import QDRANT
from vecload_connectors.sinks.qdrant.settings import QdrantSettings

COSINE = models.VectorParams(size=DIMENSIONS, distance=models.Distance.COSINE)


def open_folder(folder: Path, collection: str = "docs") -> Sink:
    return QDRANT.open(QdrantSettings(url=f"qdrant:{folder}"), collection)


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


# ---------------------------------------------------------------- the folder


def test_another_program_reads_the_folder(tmp_path: Path) -> None:
    sink = open_folder(tmp_path)
    batch = make_batch(["a", "b"])
    sink.create(make_record())
    sink.upsert(batch)
    sink.close()
    client = QdrantClient(path=str(tmp_path))
    try:
        assert client.count("docs").count == 2
        assert {alias.collection_name for alias in client.get_aliases().aliases} == {"docs__1"}
        found = client.query_points("docs", query=batch.vectors[0].tolist(), limit=1).points[0]
        assert found.payload == batch.payloads[0]
    finally:
        client.close()


def test_looking_at_an_absent_folder_does_not_make_it(tmp_path: Path) -> None:
    folder = tmp_path / "absent"
    assert open_folder(folder).inspect() is None
    assert not folder.exists()


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "readme.md").write_text("text")
    with pytest.raises(UsageError, match="not a Qdrant folder") as error:
        open_folder(tmp_path).create(make_record())
    one_line(error)
    assert [path.name for path in tmp_path.iterdir()] == ["readme.md"]


def test_a_folder_that_another_process_holds_is_refused(tmp_path: Path) -> None:
    sink = open_folder(tmp_path)
    sink.create(make_record())
    sink.close()
    code = (
        "import sys\nfrom qdrant_client import QdrantClient\n"
        "client = QdrantClient(path=sys.argv[1])\nprint('open', flush=True)\ninput()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(SinkError, match="in use by another process") as error:
            open_folder(tmp_path).inspect()
        one_line(error)
        other.communicate("\n")
    assert open_folder(tmp_path).inspect() is not None


def test_acknowledged_points_survive_a_kill(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from vecload.testing.sink_kit import make_batch, make_record\n"
        "from vecload_connectors.sinks.qdrant import QDRANT\n"
        "sink = QDRANT.open(QDRANT.settings(url=sys.argv[1]), 'docs')\n"
        "sink.create(make_record())\n"
        "sink.upsert(make_batch([str(i) for i in range(200)]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, f"qdrant:{tmp_path}"], check=False)
    assert killed.returncode == -9
    sink = open_folder(tmp_path)
    assert sink.inspect() is not None
    assert by_id(sink.scan()).keys() == set(make_batch([str(i) for i in range(200)]).ids)


def test_a_request_waits_for_the_disk_once_and_not_for_each_point(tmp_path: Path) -> None:
    """The points are in the main file, synced by a checkpoint, when the request returns."""
    sink = open_folder(tmp_path)
    sink.create(make_record())
    sink.upsert(make_batch([str(i) for i in range(50)]))
    (storage,) = (path for path in tmp_path.rglob("storage.sqlite") if "docs__1" in path.parts)
    assert storage.read_bytes()[18:20] == b"\x02\x02", "the file is not in write-ahead mode"
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(storage.read_bytes())  # without its write-ahead log
    with sqlite3.connect(copy) as connection:
        assert connection.execute("SELECT count(*) FROM points").fetchone() == (50,)
    sink.close()


def test_the_folder_takes_a_vectors_name_and_has_no_index_to_build(tmp_path: Path) -> None:
    settings = QdrantSettings(url=f"qdrant:{tmp_path}", vector_name="text", quantization="scalar", on_disk=True, m=32)
    sink = QDRANT.open(settings, "docs")
    assert not sink.capabilities.deferred_index
    sink.create(make_record())
    batch = make_batch(["a", "b"])
    sink.upsert(batch)
    assert_vectors(by_id(sink.fetch(batch.ids, vectors=True)), batch.ids, batch.vectors)
    assert sink.search(batch.vectors[1], 1)[0].id == batch.ids[1]
    sink.close()
    with pytest.raises(RefusedError, match=r"named 'text'.*this job writes unnamed vectors") as error:
        open_folder(tmp_path).inspect()
    one_line(error)


@pytest.mark.parametrize("value", [np.nan, -np.inf, 0.0])
def test_the_folder_is_sent_no_vector_that_could_never_be_found(tmp_path: Path, value: float) -> None:
    sink = open_folder(tmp_path)
    sink.create(make_record())
    batch = make_batch(["a", "b"])
    batch.vectors[1] = value
    with pytest.raises(RejectedError, match=r"NaN or infinity|all zeros") as error:
        sink.upsert(batch)
    one_line(error)
    assert sink.count() == 0
    sink.close()


def test_large_points_fit_the_folder(tmp_path: Path) -> None:
    """4,096 dimensions with 50 KB of payload, and one point of 40 MB: the folder has no limit of its own."""
    sink = open_folder(tmp_path)
    sink.create(make_record(4_096))
    small = make_batch([f"{i}" for i in range(300)])
    vectors = np.random.default_rng(0).normal(size=(300, 4_096)).astype(np.float32)
    payloads = [make_payload("x" * 50_000) for _ in range(299)] + [make_payload("y" * 40_000_000)]
    sink.upsert(VectorBatch(small.ids, vectors, payloads))
    sink.close()
    sink = open_folder(tmp_path)
    assert sink.count() == 300
    assert sink.fetch(small.ids[-1:])[0].payload == payloads[-1]
    sink.close()


@pytest.mark.parametrize("name", ["it's; DROP TABLE x", "手册", "a" * 100, "naïve-name.v2 %s {x}"])
def test_hard_names_work_in_a_folder(tmp_path: Path, name: str) -> None:
    sink = open_folder(tmp_path, name)
    sink.create(make_record())
    sink.upsert(make_batch(["a"]))
    sink.close()
    again = open_folder(tmp_path, name)
    assert again.inspect() is not None
    assert again.count() == 1
    again.close()


# ---------------------------------------------------------------- collections


def test_a_foreign_collection_is_refused(tmp_path: Path) -> None:
    client = QdrantClient(path=str(tmp_path))
    client.create_collection("docs", vectors_config=COSINE)
    client.close()
    sink = open_folder(tmp_path)
    for attempt in (sink.inspect, lambda: sink.create(make_record())):
        with pytest.raises(RefusedError, match=r"'docs'.*not made by vecload") as error:
            attempt()
        one_line(error)


def test_a_foreign_collection_of_the_next_name_is_left_alone(tmp_path: Path) -> None:
    client = QdrantClient(path=str(tmp_path))
    client.create_collection("docs__1", vectors_config=COSINE)
    client.close()
    sink = open_folder(tmp_path)
    sink.create(make_record())
    sink.upsert(make_batch(["a"]))
    sink.close()
    client = QdrantClient(path=str(tmp_path))
    assert (client.count("docs__1").count, client.count("docs__2").count, client.count("docs").count) == (0, 1, 1)
    client.close()


def test_a_dropped_collection_is_noticed(tmp_path: Path) -> None:
    sink = open_folder(tmp_path)
    sink.create(make_record())
    sink.close()
    client = QdrantClient(path=str(tmp_path))
    client.delete_collection("docs__1")
    client.close()
    sink = open_folder(tmp_path)
    assert sink.inspect() is None
    record = make_record()
    sink.create(record)
    assert sink.inspect() == record
    assert sink.count() == 0
    sink.close()


def test_a_collection_made_again_in_the_same_shape_is_noticed(tmp_path: Path) -> None:
    sink = open_folder(tmp_path)
    sink.create(make_record())
    sink.close()
    client = QdrantClient(path=str(tmp_path))
    client.delete_collection("docs__1")
    client.create_collection("docs__1", vectors_config=COSINE)
    alias = models.CreateAlias(collection_name="docs__1", alias_name="docs")
    client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    client.close()
    with pytest.raises(RefusedError, match="dropped and made again") as error:
        open_folder(tmp_path).inspect()
    one_line(error)


@pytest.mark.parametrize("size", [DIMENSIONS, DIMENSIONS + 1])
def test_a_collection_made_again_by_something_else_is_refused(tmp_path: Path, size: int) -> None:
    sink = open_folder(tmp_path)
    sink.create(make_record())
    sink.close()
    client = QdrantClient(path=str(tmp_path))
    client.delete_collection("docs__1")
    name = "docs" if size == DIMENSIONS else "docs__1"
    client.create_collection(name, vectors_config=models.VectorParams(size=size, distance=models.Distance.COSINE))
    if name == "docs__1":
        alias = models.CreateAlias(collection_name=name, alias_name="docs")
        client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
    client.close()
    with pytest.raises(RefusedError, match="'docs'"):
        open_folder(tmp_path).inspect()


@pytest.mark.parametrize("name", ["", "a/b", 'a"b', "a:b", "手" * 81, "x" * 241, "_vecload", "..", "a\0b"])
def test_bad_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as error:
        open_folder(tmp_path, name)
    one_line(error)


@pytest.mark.parametrize("url", [None, "qdrant:", "ftp://host/x", "qdrant+http://", "http://:6333"])
def test_bad_urls_are_refused(monkeypatch: pytest.MonkeyPatch, url: str | None) -> None:
    monkeypatch.delenv("QDRANT_URL", raising=False)
    with pytest.raises(UsageError) as error:
        QDRANT.open(QdrantSettings(url=url), "docs")
    one_line(error)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QDRANT_URL", "https://user:pass@qdrant.example:6333/?x=y")
    monkeypatch.setenv("QDRANT_API_KEY", "very-secret")
    settings = QdrantSettings()
    assert settings.api_key == SecretStr("very-secret")
    assert "very-secret" not in repr(settings)
    assert QDRANT.open(settings, "docs").id == "qdrant+https://qdrant.example:6333#docs"


# ---------------------------------------------------------------- a server, as far as the wire form goes


@pytest.fixture
def wire() -> Iterator[WireServer]:
    with wire_server() as server:
        yield server


def open_wire(wire: WireServer, api_key: str | None = None) -> Sink:
    key = SecretStr(api_key) if api_key else None
    return QDRANT.open(QdrantSettings(url=wire.url, grpc_port=wire.grpc_port, api_key=key), "docs")


def test_create_indexes_source_and_document(wire: WireServer) -> None:
    open_wire(wire).create(make_record())
    assert wire.requests.count("CreateFieldIndex") == 2


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "ABORTED", "RESOURCE_EXHAUSTED"])
def test_transient_errors_are_tried_again(wire: WireServer, code: str) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    wire.failures.append(Failure(grpc.StatusCode[code]))
    batch = make_batch(["a"])
    sink.upsert(batch)
    assert wire.requests[-2:] == ["Upsert", "Upsert"]
    assert sink.count() == 1


def test_a_rate_limit_is_waited_out(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    wire.failures.append(Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "rate limit", retry_after=1))
    sink.upsert(make_batch(["a"]))
    assert sink.count() == 1


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "OUT_OF_RANGE"])
def test_rejected_points_are_told_from_a_failing_store(wire: WireServer, code: str) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    wire.failures.append(Failure(grpc.StatusCode[code], "bad\npoints"))
    with pytest.raises(RejectedError, match="bad points") as error:
        sink.upsert(make_batch(["a"]))
    one_line(error)


def test_a_vanished_collection_is_not_tried_again(wire: WireServer) -> None:
    sink = open_wire(wire)
    sink.create(make_record())
    wire.local.delete_collection("docs__1")
    with pytest.raises(SinkError, match="not found") as error:
        sink.upsert(make_batch(["a"]))
    assert not isinstance(error.value, RejectedError)
    assert wire.requests[-1] == "Upsert"
    assert wire.requests[-2] != "Upsert"


def test_a_wrong_api_key_is_one_sentence_without_the_key(wire: WireServer) -> None:
    wire.api_key = "right"
    with pytest.raises(SinkError, match="QDRANT_API_KEY") as error:
        open_wire(wire, api_key="wrong-secret").inspect()
    assert "wrong-secret" not in one_line(error)
    assert len(wire.requests) == 1
    assert open_wire(wire, api_key="right").inspect() is None


def test_no_server_is_one_sentence() -> None:
    with wire_server() as wire:
        pass
    with pytest.raises(SinkError, match="out of reach") as error:
        open_wire(wire).inspect()
    one_line(error)
