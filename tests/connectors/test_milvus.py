"""What is Milvus' own: the folder of Milvus Lite and its lock, aliases, sizes, and how errors are told apart."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr
from pymilvus import MilvusClient

from tests.servers.milvus import MilvusServer
from vecload.contracts import Sink
from vecload.documents import Json, VectorBatch
from vecload.errors import RefusedError, RejectedError, SinkError, UsageError
from vecload.testing.sink_kit import DIMENSIONS, by_id, make_batch, make_payload, make_record
from vecload_connectors.sinks.milvus import MILVUS
from vecload_connectors.sinks.milvus.schema import points_schema
from vecload_connectors.sinks.milvus.settings import MilvusSettings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "milvus.db"


def open_lite(folder: Path, collection: str = "docs") -> Sink:
    return MILVUS.open(MilvusSettings(url=f"milvus:{folder}"), collection)


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 500
    return message


def in_another_process(folder: Path, code: str) -> str:
    """Runs code with `client`, a client of the folder as any program would open it; returns what it printed."""
    start = "import sys\nfrom pymilvus import MilvusClient\nclient = MilvusClient(sys.argv[1])\n"
    command = [sys.executable, "-c", start + code, str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# ---------------------------------------------------------------- the folder


def test_another_program_reads_the_folder(folder: Path) -> None:
    with closing(open_lite(folder)) as sink:
        sink.create(make_record())
        sink.upsert(make_batch(["a", "b"]))
    code = (
        "client.load_collection('docs')\n"
        "print(client.describe_collection('docs')['collection_name'])\n"
        "rows = client.query('docs', filter='text == \"b\"', output_fields=['document', 'headings', 'metadata'])\n"
        "print(rows[0]['document'], list(rows[0]['headings']), rows[0]['metadata'])\n"
    )
    assert in_another_process(folder, code) == "docs__1\nguide.md ['Guide', 'Getting started'] {}\n"


def test_looking_at_an_absent_folder_does_not_make_it(folder: Path) -> None:
    assert open_lite(folder).inspect() is None
    assert not folder.exists()


def test_a_folder_of_other_files_is_refused(folder: Path) -> None:
    folder.mkdir()
    (folder / "readme.md").write_text("text")
    with pytest.raises(UsageError, match="no Milvus Lite folder") as error:
        open_lite(folder).create(make_record())
    one_line(error)
    assert [path.name for path in folder.iterdir()] == ["readme.md"]


def test_a_file_is_refused(folder: Path) -> None:
    folder.write_text("from an older Milvus Lite")
    with pytest.raises(UsageError, match="is a file") as error:
        open_lite(folder).create(make_record())
    one_line(error)


def test_a_folder_that_another_process_holds_is_refused(folder: Path) -> None:
    with closing(open_lite(folder)) as sink:
        sink.create(make_record())
    code = (
        "import sys\nfrom milvus_lite import MilvusLite\n"
        "database = MilvusLite(sys.argv[1])\nprint('open', flush=True)\ninput()"
    )
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(SinkError, match="in use") as error:
            open_lite(folder).inspect()
        one_line(error)
        other.communicate("\n")
    with closing(open_lite(folder)) as sink:
        assert sink.inspect() is not None


def test_acknowledged_points_survive_a_kill(folder: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from vecload.testing.sink_kit import make_batch, make_record\n"
        "from vecload_connectors.sinks.milvus import MILVUS\n"
        "sink = MILVUS.open(MILVUS.settings(url=sys.argv[1]), 'docs')\n"
        "sink.create(make_record())\n"
        "sink.upsert(make_batch([str(i) for i in range(200)]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, f"milvus:{folder}"], check=False)
    assert killed.returncode == -9
    with closing(open_lite(folder)) as sink:
        assert sink.inspect() is not None
        assert by_id(sink.scan()).keys() == set(make_batch([str(i) for i in range(200)]).ids)


def test_the_drivers_print_nothing_of_a_refused_point(folder: Path) -> None:
    code = (
        "import sys\n"
        "from vecload.errors import RejectedError\n"
        "from vecload.testing.sink_kit import make_batch, make_record\n"
        "from vecload_connectors.sinks.milvus import MILVUS\n"
        "sink = MILVUS.open(MILVUS.settings(url=sys.argv[1]), 'docs')\n"
        "sink.create(make_record())\n"
        "try:\n    sink.upsert(make_batch(['x' * 70_000]))\n"
        "except RejectedError:\n    print('refused')\n"
        "sink.close()\n"
    )
    command = [sys.executable, "-c", code, f"milvus:{folder}"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("refused\n", "")


# ---------------------------------------------------------------- collections


FOREIGN = (
    "schema = client.create_schema()\n"
    "schema.add_field('id', 21, is_primary=True, max_length=36)\n"
    "schema.add_field('embedding', 101, dim=8)\n"
    "client.create_collection('{name}', schema=schema)\n"
)


def test_a_foreign_collection_is_refused(folder: Path) -> None:
    in_another_process(folder, FOREIGN.format(name="docs"))
    with closing(open_lite(folder)) as sink:
        for attempt in (sink.inspect, lambda: sink.create(make_record())):
            with pytest.raises(RefusedError, match=r"'docs'.*not made by vecload") as error:
                attempt()
            one_line(error)


def test_a_foreign_collection_of_the_next_name_is_left_alone(folder: Path) -> None:
    in_another_process(folder, FOREIGN.format(name="docs__1"))
    with closing(open_lite(folder)) as sink:
        sink.create(make_record())
        sink.upsert(make_batch(["a"]))
    code = "print(client.describe_collection('docs')['collection_name'], client.has_collection('docs__1'))"
    assert in_another_process(folder, code) == "docs__2 True\n"


def test_a_collection_made_again_by_something_else_is_refused(folder: Path) -> None:
    with closing(open_lite(folder)) as sink:
        sink.create(make_record())
    drop = "client.drop_alias('docs')\nclient.drop_collection('docs__1')\n"
    in_another_process(folder, drop + FOREIGN.format(name="docs__1") + "client.create_alias('docs__1', 'docs')")
    with closing(open_lite(folder)) as sink, pytest.raises(RefusedError, match=r"'docs'.*made again") as error:
        sink.inspect()
    one_line(error)


def test_a_creation_cut_short_is_made_whole(folder: Path) -> None:
    with closing(open_lite(folder)) as sink:
        sink.create(make_record())
    in_another_process(
        folder,
        "client.drop_alias('docs')\nclient.release_collection('docs__1')\nclient.drop_index('docs__1', 'embedding')",
    )
    with closing(open_lite(folder)) as sink:
        assert sink.inspect() is None
        sink.create(make_record())
        sink.upsert(make_batch(["a"]))
        assert len(sink.search(make_batch(["a"]).vectors[0], 1)) == 1
    code = "print(client.describe_collection('docs')['collection_name'])"
    assert in_another_process(folder, code) == "docs__1\n"


def test_the_record_of_a_wide_model_is_kept_whole(folder: Path) -> None:
    wide = replace(make_record(), probes="A" * 175_000)
    narrow = replace(make_record(), probes="B")
    with closing(open_lite(folder)) as sink:
        sink.create(wide)
        assert sink.inspect() == wide
        sink.save_record(narrow)
        assert sink.inspect() == narrow


@pytest.mark.parametrize("name", ["", "a-b", "a b", "1a", "名前", "a.b", "x;drop", 'a"b', "x" * 241, "_vecload"])
def test_bad_names_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(UsageError) as error:
        open_lite(folder, name)
    one_line(error)


URLS = [
    None,
    "milvus:",
    "milvus:./folder",
    "milvus://host",
    "ftp://host/x.db",
    "milvus+http://",
    "http://:1",
    "http://h:x",
    "http://h/db",
]


@pytest.mark.parametrize("url", URLS)
def test_bad_urls_are_refused(monkeypatch: pytest.MonkeyPatch, url: str | None) -> None:
    monkeypatch.delenv("MILVUS_URI", raising=False)
    with pytest.raises(UsageError) as error:
        MILVUS.open(MilvusSettings(url=url), "docs")
    one_line(error)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILVUS_URI", "https://user:pass@milvus.example:19530")
    monkeypatch.setenv("MILVUS_TOKEN", "very-secret")
    monkeypatch.setenv("MILVUS_DATABASE", "books")
    settings = MilvusSettings()
    assert settings.token == SecretStr("very-secret")
    assert "very-secret" not in repr(settings)
    assert "pass@" not in repr(settings)
    assert MILVUS.open(settings, "docs").id == "milvus+https://milvus.example:19530/books#docs"


# ---------------------------------------------------------------- points, in both stores


@pytest.fixture(params=["lite", "server"])
def sink(request: pytest.FixtureRequest, folder: Path) -> Iterator[Sink]:
    """An empty collection of eight dimensions."""
    sink = open_lite(folder) if request.param == "lite" else open_server(request.getfixturevalue("milvus"))
    sink.create(make_record())
    yield sink
    sink.close()


def open_server(server: MilvusServer, uri: str | None = None) -> Sink:
    settings = MilvusSettings(url=f"milvus+{uri or server.uri}", token=SecretStr(server.token))
    return MILVUS.open(settings, f"test_{uuid.uuid4().hex[:12]}")


def test_bad_points_are_rejected_in_one_sentence(sink: Sink) -> None:
    good = make_batch(["good"])
    bad_vector = good.vectors.copy()
    bad_vector[0, 3] = np.nan
    bad = [
        VectorBatch(good.ids, bad_vector, good.payloads),
        VectorBatch(good.ids, np.full_like(good.vectors, np.inf), good.payloads),
        VectorBatch(good.ids, np.tile(good.vectors, 2), good.payloads),
        VectorBatch(good.ids, good.vectors, [make_payload("x" * 70_000)]),
        VectorBatch(good.ids, good.vectors, [make_payload("x", document="k" * 70_000)]),
        VectorBatch(good.ids, good.vectors, [make_payload("x", document="\ud800")]),
    ]
    for batch in bad:
        with pytest.raises(RejectedError) as error:
            sink.upsert(batch)
        one_line(error)
    sink.upsert(good)
    assert sink.count() == 1


def test_a_vector_of_zeros_is_kept(sink: Sink) -> None:
    batch = make_batch(["zeros", "other"])
    vectors = batch.vectors.copy()
    vectors[0] = 0.0
    sink.upsert(VectorBatch(batch.ids, vectors, batch.payloads))
    found = by_id(sink.fetch(batch.ids, vectors=True))
    np.testing.assert_array_equal(found[batch.ids[0]].vector, np.zeros(DIMENSIONS, dtype=np.float32))
    assert sink.search(batch.vectors[1], 1)[0].id == batch.ids[1]


def test_null_is_found_behind_many_nearer_points(sink: Sink) -> None:
    batch = make_batch([str(i) for i in range(60)])
    languages: list[Json] = [None if i in (58, 59) else "de" for i in range(60)]
    payloads = [make_payload("t", metadata={"language": language}) for language in languages]
    payloads[0] = make_payload("without")
    order = np.argsort(-(batch.vectors @ batch.vectors[0]))
    sink.upsert(VectorBatch(batch.ids, batch.vectors[order], payloads))
    hits = sink.search(batch.vectors[0], 2, {"metadata.language": None})
    assert [hit.id for hit in hits] == [batch.ids[58], batch.ids[59]]


# ---------------------------------------------------------------- a server


def test_answers_over_the_servers_limit_come_in_parts(milvus: MilvusServer) -> None:
    with closing(open_server(milvus)) as sink:
        sink.create(make_record())
        text = "x" * 65_000
        batch = make_batch([f"{i} {text}" for i in range(1_700)])  # 110 MB
        for start in range(0, len(batch), 200):
            part = slice(start, start + 200)
            sink.upsert(VectorBatch(batch.ids[part], batch.vectors[part], batch.payloads[part]))
        assert {point.id for point in sink.scan()} == set(batch.ids)
        assert {point.id for point in sink.fetch(batch.ids)} == set(batch.ids)


def test_metadata_over_the_servers_limit_is_rejected(milvus: MilvusServer) -> None:
    batch = make_batch(["a"])
    with closing(open_server(milvus)) as sink:
        sink.create(make_record())
        with pytest.raises(RejectedError, match="metadata") as error:
            sink.upsert(VectorBatch(batch.ids, batch.vectors, [make_payload("a", metadata={"long": "x" * 70_000})]))
        one_line(error)


def test_a_dropped_collection_is_noticed_and_made_anew(milvus: MilvusServer) -> None:
    client = MilvusClient(milvus.uri, token=milvus.token)
    with closing(open_server(milvus)) as sink:
        sink.create(make_record())
        name = sink.id.rpartition("#")[2]
        client.drop_collection(f"{name}__1")
        with pytest.raises(SinkError, match="may have been dropped") as error:
            sink.upsert(make_batch(["a"]))
        assert not isinstance(error.value, RejectedError)
        assert sink.inspect() is None
        record = make_record()
        sink.create(record)
        assert sink.inspect() == record
        assert sink.count() == 0


def test_a_released_collection_is_loaded_again(milvus: MilvusServer) -> None:
    client = MilvusClient(milvus.uri, token=milvus.token)
    with closing(open_server(milvus)) as sink:
        sink.create(make_record())
        sink.upsert(make_batch(["a"]))
        client.release_collection(f"{sink.id.rpartition('#')[2]}__1")
        assert sink.inspect() is not None
        assert sink.count() == 1


@pytest.mark.parametrize("token", ["root:wrong-secret", None])
def test_a_refused_login_is_one_sentence_without_the_secret(
    milvus: MilvusServer, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    monkeypatch.delenv("MILVUS_TOKEN", raising=False)
    settings = MilvusSettings(url=f"milvus+{milvus.uri}", token=SecretStr(token) if token else None)
    with pytest.raises(SinkError, match=r"refused the login.*sink\.token") as error:
        MILVUS.open(settings, "docs").inspect()
    assert "wrong-secret" not in one_line(error)


def test_user_and_password_may_stand_in_the_url(milvus: MilvusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILVUS_TOKEN", raising=False)
    url = milvus.uri.replace("//", "//root:Mil%76us@")
    with closing(MILVUS.open(MilvusSettings(url=f"milvus+{url}"), "absent")) as sink:
        assert sink.inspect() is None


def test_an_absent_database_is_one_sentence(milvus: MilvusServer) -> None:
    settings = MilvusSettings(url=f"milvus+{milvus.uri}", token=SecretStr(milvus.token), database="absent")
    with (
        closing(MILVUS.open(settings, "docs")) as sink,
        pytest.raises(SinkError, match=r"no such database.*absent") as error,
    ):
        sink.create(make_record())
    one_line(error)


def test_no_server_is_one_sentence() -> None:
    with pytest.raises(SinkError, match="out of reach") as error:
        MILVUS.open(MilvusSettings(url="milvus+http://127.0.0.1:1"), "docs").inspect()
    one_line(error)


class Gate:
    """A way to a server, on a port of its own, that can be shut: then connections break and are refused."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        for opened in [self._listener, *self._open]:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()
        self._open.clear()

    def reopen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                here, _ = listener.accept()
                there = socket.create_connection(self._target)
                self._open += [here, there]
                for ends in ((here, there), (there, here)):
                    threading.Thread(target=self._copy, args=ends, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)


def test_an_outage_is_waited_out_and_nothing_is_lost_or_doubled(
    milvus: MilvusServer, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(milvus.port)
    with closing(open_server(milvus, f"http://127.0.0.1:{gate.port}")) as sink:
        sink.create(make_record())
        sink.upsert(make_batch(["before"]))
        gate.shut()
        threading.Timer(1.0, gate.reopen).start()
        sink.upsert(make_batch(["during", "before"]))
        assert any("Trying again" in record.message for record in caplog.records)
        assert sink.count() == 2
        assert by_id(sink.scan()).keys() == set(make_batch(["before", "during"]).ids)
    gate.shut()


def test_points_schema_is_what_the_documentation_says() -> None:
    """Readers rely on these names and types."""
    fields = {field.name: field.dtype.name for field in points_schema(DIMENSIONS).fields}
    assert fields == {
        "id": "VARCHAR",
        "source": "VARCHAR",
        "document": "VARCHAR",
        "text": "VARCHAR",
        "text_hash": "VARCHAR",
        "ordinal": "INT64",
        "start": "INT64",
        "end": "INT64",
        "headings": "ARRAY",
        "metadata": "JSON",
        "embedding": "FLOAT_VECTOR",
    }
