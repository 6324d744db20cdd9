"""The worker's life: it dies with vecload, and its own death is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.engines.tiny_models import tiny_qwen
from vecload.embedding import packed
from vecload.engines import vllm_pooling
from vecload.engines.vllm_pooling import VLLM, VllmPoolingEngine, VllmSettings
from vecload.errors import EngineDiedError, EngineError, MissingDependencyError
from vecload.models import Model

pytest.importorskip("vllm")

BATCH = packed([np.array([1, 2, 3], dtype=np.int32)])

PARENT = """
import sys, threading, time
from vecload.engines.vllm_pooling import VLLM, VllmSettings
from vecload.models import Model
engine = VLLM.open(VllmSettings(), Model.resolve(sys.argv[1]))
if sys.argv[2] == "ready":
    engine.start()
    print(engine.worker_pid, flush=True)
else:
    threading.Thread(target=engine.start, daemon=True).start()
    print("starting", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def engine(tiny: Path) -> VllmPoolingEngine:
    return VllmPoolingEngine(VllmSettings(), Model.resolve(str(tiny)))


def members(parent: int) -> set[int]:
    """The processes below `parent`, wherever they are in the tree."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            table[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    while more := {pid for pid, above in table.items() if above in found | {parent}} - found:
        found |= more
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize(
    ("when", "multiprocess"), [("ready", "0"), ("ready", "1"), ("starting", "0")], ids=["ready", "two-stage", "loading"]
)
def test_a_killed_parent_leaves_nothing_behind(tiny: Path, when: str, multiprocess: str) -> None:
    environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": multiprocess}
    command = [sys.executable, "-c", PARENT, str(tiny), when]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        said = parent.stdout.readline().strip()
        # Guard and worker; vLLM's own process behind them where it has one.
        expected = 3 if multiprocess == "1" else 2
        assert eventually(lambda: len(members(parent.pid)) >= expected)
        below = members(parent.pid)
        assert when != "ready" or int(said) in below
        parent.send_signal(signal.SIGKILL)
    assert eventually(lambda: not any(map(alive, below))), f"still alive: {[p for p in below if alive(p)]}"


def test_a_killed_worker_fails_what_is_open_and_what_comes(engine: VllmPoolingEngine) -> None:
    engine.start()
    assert engine.submit(BATCH).result().shape == (1, 64)
    assert engine.worker_pid is not None
    os.kill(engine.worker_pid, signal.SIGSTOP)  # so that the batches are surely open when it dies
    waiting = [engine.submit(BATCH) for _ in range(3)]
    os.kill(engine.worker_pid, signal.SIGKILL)
    for future in waiting:
        with pytest.raises(EngineDiedError, match="worker was killed by SIGKILL"):
            future.result(60)
    with pytest.raises(EngineDiedError, match="SIGKILL"):
        engine.submit(BATCH).result(60)
    engine.close()


def test_close_ends_every_process(engine: VllmPoolingEngine) -> None:
    before = members(os.getpid())
    engine.start()
    below = members(os.getpid()) - before
    assert engine.worker_pid in below
    engine.close()
    assert not any(map(alive, below))
    with pytest.raises(EngineDiedError, match="was closed"):
        engine.submit(BATCH).result(60)


def test_a_start_that_takes_too_long_is_given_up(tiny: Path) -> None:
    before = members(os.getpid())
    engine = VLLM.open(VllmSettings(start_timeout_seconds=0.2), Model.resolve(str(tiny)))
    with pytest.raises(EngineError, match="start_timeout_seconds"):
        engine.start()
    assert eventually(lambda: not any(map(alive, members(os.getpid()) - before)))


def test_weights_that_are_broken_are_one_sentence(tmp_path: Path) -> None:
    folder = tiny_qwen(tmp_path / "broken")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    engine = VLLM.open(VllmSettings(), Model.resolve(str(folder)))
    with pytest.raises(EngineError) as raised:
        engine.start()
    assert "did not start: Error while deserializing" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("gpu", "says"), [(True, r"vecload\[gpu\]"), (False, r"requirements/cpu\.txt")])
def test_without_vllm_the_right_command_is_named(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool, says: str
) -> None:
    monkeypatch.setattr(vllm_pooling, "find_spec", lambda name: None)
    monkeypatch.setattr(vllm_pooling, "gpu_present", lambda: gpu)
    with pytest.raises(MissingDependencyError, match=says):
        VLLM.open(VllmSettings(), Model.resolve(str(tiny)))
