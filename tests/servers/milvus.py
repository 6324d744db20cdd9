"""A real Milvus server (2.3.5, standalone) for tests: one a test process, on free ports of the loopback."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

START_SECONDS = 120
_COMPONENTS = ("rootCoord", "proxy", "queryCoord", "queryNode", "indexCoord", "indexNode", "dataCoord", "dataNode")


@dataclass
class MilvusServer:
    """A running server that asks for a login. It is shared: a test uses collections of its own."""

    folder: Path
    port: int
    health_port: int
    process: subprocess.Popen[bytes] | None = None
    token: str = "root:Milvus"

    @property
    def uri(self) -> str:
        """As pymilvus wants it; behind `milvus+` it is the sink's url."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts the server over what its folder holds, and waits until it is ready."""
        environment = {
            **os.environ,
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(self.health_port),
            "ETCD_CONFIG_PATH": str(self.folder / "etcd.yaml"),
            "LD_LIBRARY_PATH": str(self.folder / "bin"),
        }
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.folder / "bin" / "milvus"), "run", "standalone"],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait(self.process)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/healthz", timeout=5) as answer:
                    if b"OK" in answer.read():
                        return
            except (OSError, urllib.error.URLError):
                pass
            time.sleep(0.2)
        raise RuntimeError(f"it did not start: {(self.folder / 'log').read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """At once: asked to stop, it takes half a minute, and there is nothing in it to keep."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="session")
def milvus() -> Iterator[MilvusServer]:
    folder = Path(tempfile.mkdtemp(prefix="vecload-milvus-"))
    server = None
    try:
        server = _prepare(folder)
        server.start()
    except Exception as error:
        _clean_up(folder, server)
        _unavailable(f"no Milvus server for tests: {error}")
    try:
        yield server
    finally:
        _clean_up(folder, server)


def _prepare(folder: Path) -> MilvusServer:
    if importlib.util.find_spec("milvus") is None:
        raise RuntimeError("the package milvus is not installed (pip install --no-deps milvus==2.3.5)")
    import milvus as package

    config = package.MilvusServerConfig(data_dir=str(folder))
    names = [name for name in config.configurable_items if name.endswith("_port")]
    health_port, etcd_port, peer_port, *ports = _free_ports(len(names) + 3)
    config.update(**dict(zip(names, ports, strict=True)))
    for component in _COMPONENTS:
        # Else it announces itself under the address of the first network card.
        config.set(f"{component}.ip", "127.0.0.1")
    config.set("authorization_enabled", True)
    # Milliseconds: each read of what was just written waits for the next tick.
    config.set("proxy.timeTickInterval", 50)
    config.resolve()
    _write_etcd_config(folder / "etcd.yaml", etcd_port, peer_port)
    package._initialize_data_files(str(folder))
    return MilvusServer(folder, port=int(config.get("proxy_port")), health_port=health_port)


def _write_etcd_config(path: Path, port: int, peer_port: int) -> None:
    """The etcd inside the server would take its usual ports, whatever the server's settings say."""
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    settings = {
        "name": "default",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
    }
    path.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))


def _clean_up(folder: Path, server: MilvusServer | None) -> None:
    if server is not None:
        server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("VECLOAD_REQUIRE_SERVERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
