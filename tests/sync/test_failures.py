"""What goes wrong outside: one sentence each, the right exit status, nothing changed, and no secret told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import vecload
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import S3Server
from tests.world import World, prose
from vecload.errors import VecloadError


def failing(world: World, **arguments: object) -> VecloadError:
    with pytest.raises(VecloadError) as caught:
        world.sync(**arguments)  # type: ignore[arg-type]  # passed on
    message = str(caught.value)
    assert "\n" not in message
    assert "Traceback" not in message
    return caught.value


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port


def test_a_wrong_s3_secret(world: World, s3: S3Server) -> None:
    s3.make_bucket("secrets")
    s3.put("secrets", "a.md", prose(1).encode())
    world.source = "s3://secrets/"
    world.settings["source"] = dict(s3.settings)
    assert world.sync().documents.new == 1
    before = world.points()
    world.settings["source"]["secret_access_key"] = "wrong-and-secret"
    error = failing(world)
    assert error.exit_code == 1
    assert "secrets" in str(error)
    assert "wrong-and-secret" not in str(error)
    assert world.points() == before


def test_a_bucket_that_is_not_there(world: World, s3: S3Server) -> None:
    world.source = "s3://no-such-bucket/"
    world.settings["source"] = dict(s3.settings)
    error = failing(world)
    assert error.exit_code == 1
    assert "no-such-bucket" in str(error)
    assert world.points() == []


def test_postgres_is_down(world: World) -> None:
    world.write("a.md", prose(1))
    world.sink = f"postgresql://someone:very-secret@127.0.0.1:{free_port()}/database"
    error = failing(world)
    assert error.exit_code == 1
    assert "127.0.0.1" in str(error)
    assert "very-secret" not in str(error)


def test_pgvector_is_not_in_the_database(world: World, postgres: PostgresServer) -> None:
    """A role that may not create extensions, in a database without this one."""
    import psycopg

    dsn = postgres.new_database(extension=False)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE of_the_sync_test LOGIN")
        connection.execute("GRANT ALL ON SCHEMA public TO of_the_sync_test")
    world.write("a.md", prose(1))
    world.sink = dsn.replace("postgres@", "of_the_sync_test@")
    error = failing(world)
    assert error.exit_code == 1
    assert "pgvector" in str(error)


@pytest.mark.parametrize("model", ["package:no-such-package", "./no/such/folder"])
def test_a_model_that_is_not_there(world: World, model: str) -> None:
    world.write("a.md", prose(1))
    error = failing(world, model=model)
    assert error.exit_code == 2
    assert model.removeprefix("./").removeprefix("package:") in str(error)
    assert not (world.folder / "vectors").exists()


def test_a_setting_that_does_not_exist(world: World) -> None:
    error = failing(world, settings={"chunk": {"max_token": 3}})
    assert error.exit_code == 2
    assert "chunk.max_token" in str(error)
    assert "max_tokens" in str(error)


def test_the_report_is_filled_on_failure(world: World) -> None:
    report = vecload.RunReport()
    world.source = str(world.folder / "nowhere")
    failing(world, report=report)
    assert report.exit_code == 1
    assert report.error
    assert report.to_dict()["documents"]["read"] == 0


def test_a_second_run_of_the_same_job_is_refused(world: World) -> None:
    from vecload.ledger import Ledger, RunLock

    world.write("a.md", prose(1))
    world.sync()
    sink = world.open_sink()
    held = RunLock(Path(world.ledger), sink.id, str(world.docs))
    sink.close()
    try:
        assert failing(world).exit_code == 1
    finally:
        held.close()
    Ledger.open(world.ledger).close()
    assert world.sync().exit_code == 0
