"""All that depends on vLLM's release or on the device: its arguments, and how vectors are asked for.

Checked with vLLM 0.20 on GPUs and 0.32 on CPUs. Names are looked up in vLLM's own classes rather than told from its
version, so that a release between or after them works too.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix

GIB = 1 << 30
_CPU_STEP_TOKENS = 2048
"""Tokens in one step on a CPU: what fits its caches. 16,384 are a third slower."""
_CPU_BLOCK = 128


def gpu_present() -> bool:
    """Whether the machine shows a GPU, told without importing anything."""
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


def set_environment(args: Mapping[str, Any]) -> None:
    """What must stand in the environment before vLLM is imported. What the user has set stays."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is a folder by now, and nothing else may be fetched
    defaults = {"VLLM_NO_USAGE_STATS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if "max_model_len" not in args:
        # transform.max_tokens may be over the limit in sentence-transformers' files; the model's own was checked.
        defaults["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    # The worker is a process of its own already: another one behind it only adds copies between the two.
    defaults["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if not gpu_present():
        defaults["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))  # cannot be set once torch is imported
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def engine_arguments(model: Mapping[str, Any], args: Mapping[str, Any], engines: int = 1) -> dict[str, Any]:
    """Arguments for `vllm.LLM`: ours, with the user's on top. `engines` share the GPU.

    `model` is what vecload knows: path, pooling, max_tokens and config (the content of `config.json`).
    """
    max_len = args.get("max_model_len") or (_cpu_limit(model) if on_cpu() else model["max_tokens"])
    arguments: dict[str, Any] = {
        "model": model["path"],
        "runner": "pooling",
        "max_model_len": max_len,
        "pooler_config": pooler_config(model["pooling"], args.get("pooler_config")),
        # Nothing of an embedding is ever asked for again, and no vector may depend on what came before.
        "enable_prefix_caching": False,
        "disable_log_stats": True,
    }
    arguments |= _cpu_arguments(model, max_len, args) if on_cpu() else _gpu_arguments(model, max_len, args, engines)
    return arguments | {key: value for key, value in args.items() if key != "pooler_config"}


def pooler_config(pooling: str, own: Mapping[str, Any] | None = None) -> Any:
    """Raw pooled vectors: vecload normalises by itself, in float32, so that one rule holds for every engine."""
    from vllm.config import PoolerConfig

    names = {field.name for field in dataclasses.fields(PoolerConfig)}
    raw = "use_activation" if "use_activation" in names else "normalize"
    return PoolerConfig(**{"pooling_type": pooling, raw: False, **(own or {})})


def _gpu_arguments(model: Mapping[str, Any], max_len: int, args: Mapping[str, Any], engines: int) -> dict[str, Any]:
    from vllm.platforms import current_platform

    memory = current_platform.get_device_total_memory() // engines
    # 65,536 tokens in a step keep a large GPU busy; a small one has no memory for their activations.
    step = max(max_len, 65536 if memory > 39 * GIB else 32768 if memory > 20 * GIB else 16384)
    arguments: dict[str, Any] = {
        # Older GPUs (before Ampere) have no bfloat16: vLLM chooses there.
        "dtype": "bfloat16" if current_platform.has_device_capability(80) else "auto",
        "max_num_batched_tokens": step,
        "max_num_seqs": 4096,
    }
    if "distributed_executor_backend" not in args:
        # The next step is made ready while the GPU works on this one. vLLM leaves it off for pooling models, and not
        # every executor that a user may name can do it.
        arguments["async_scheduling"] = True
    if engines > 1:
        # Each would measure what the others take as its own, so none may size its KV cache by what is free. Two steps
        # are under way at a time; the numbers are of 16 bits, half of float32.
        arguments["gpu_memory_utilization"] = 0.9 / engines
        arguments["kv_cache_memory_bytes"] = (2 * step + max_len) * _kv_bytes_per_token(model["config"]) // 2
    return arguments


def _cpu_arguments(model: Mapping[str, Any], max_len: int, args: Mapping[str, Any]) -> dict[str, Any]:
    # Where a text cannot be cut, a step must take the longest.
    step = _CPU_STEP_TOKENS if _in_steps(model) else max(_CPU_STEP_TOKENS, max_len)
    arguments: dict[str, Any] = {
        # vLLM's default would turn float32 weights into float16, which is slow and less exact on a CPU.
        "dtype": "float32",
        "enforce_eager": True,  # compiling gains nothing on a CPU and takes up to a minute at start
        "max_num_batched_tokens": step,
        "max_num_seqs": 256,
    }
    if "gpu_memory_utilization" not in args and "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
        # Room for the longest text at least, and for a step of short ones up to 1 GiB. vLLM's own default takes most
        # of the memory, and refuses to start where other programs use some of it.
        token = _kv_bytes_per_token(model["config"])
        least = (max_len + 3 * _CPU_BLOCK) * token
        comfortable = (max_len + step + 64 * _CPU_BLOCK) * token
        arguments["kv_cache_memory_bytes"] = max(64 << 20, least, min(comfortable, GIB))
    return arguments


def _in_steps(model: Mapping[str, Any]) -> bool:
    """Whether a long text may be cut into several steps: attention is causal and the last token is taken."""
    return model["pooling"] == "LAST" and model["config"].get("is_causal") is not False


def _cpu_limit(model: Mapping[str, Any]) -> int:
    """The longest text: the model's own limit, but with a KV cache of at most a quarter of the free memory.

    A decoder that takes 32,768 tokens would ask for many GiB that chunks of some hundred tokens never use.
    """
    import psutil  # type: ignore[import-untyped]  # it has no stubs; vLLM brings it

    limit = int(model["max_tokens"])
    token = _kv_bytes_per_token(model["config"])
    if not _in_steps(model) or not token:
        return limit
    room: int = psutil.virtual_memory().available // 4 // token
    return min(limit, max(1024, room))


def _kv_bytes_per_token(config: Mapping[str, Any]) -> int:
    """What the keys and values of one token take, in float32."""
    text = config.get("text_config") or config
    heads = text.get("num_attention_heads") or 1
    head_dim = text.get("head_dim") or (text.get("hidden_size") or 0) // heads
    return int(2 * 4 * (text.get("num_hidden_layers") or 0) * (text.get("num_key_value_heads") or heads) * head_dim)


class PoolingCore:
    """vLLM's engine core, asked for embeddings without the layers that `LLM.encode` puts around it.

    Those copy the parameters, the state and the output of every single text, which takes longer than a GPU needs to
    embed a short one; and `encode` hands out nothing before the last text is done, so the GPU runs dry between calls.
    Not thread-safe.
    """

    def __init__(self, llm: Any) -> None:
        from vllm import PoolingParams
        from vllm.v1.engine import EngineCoreRequest

        self._llm = llm  # what shuts the core down when it goes
        self._core = llm.llm_engine.engine_core
        self._params = PoolingParams(task="embed")
        self._params.verify(llm.llm_engine.model_config)
        self._request = EngineCoreRequest
        self._next = 0

    def add(self, ids: list[int]) -> str:
        """Queues one text; the name under which `step` hands out its vector."""
        name = str(self._next)
        self._next += 1
        request = self._request(
            request_id=name,
            prompt_token_ids=ids,
            mm_features=None,
            sampling_params=None,
            pooling_params=self._params,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        self._core.add_request(request)
        return name

    def step(self) -> list[tuple[str, Any]]:
        """Runs one step of the model; the texts that are done, each with its pooled vector as a tensor."""
        return [(output.request_id, output.pooling_output) for output in self._core.get_output().outputs]

    def abort(self, names: list[str]) -> None:
        """Forgets texts that are not done."""
        self._core.abort_requests(names)


def as_rows(vectors: list[Any]) -> FloatMatrix:
    """Pooled vectors as one float32 array of shape (len(vectors), dimensions)."""
    import torch

    return np.asarray(torch.stack(vectors).to(dtype=torch.float32, device="cpu").numpy(), dtype=np.float32)


def out_of_memory(error: Exception) -> bool:
    """Whether one step was too large, as against an engine that is broken from now on."""
    return type(error).__name__ in ("OutOfMemoryError", "MemoryError")


def is_unknown(architecture: str, reason: str) -> bool:
    """Whether an engine did not start because this vLLM does not know the architecture.

    An architecture that is not in the list may still work (by another name, or through transformers), so the list
    alone does not tell.
    """
    from vllm import ModelRegistry

    named = re.search("architecture|model type|no vLLM implementation", reason, re.IGNORECASE)
    return bool(named) and architecture not in ModelRegistry.get_supported_archs()
