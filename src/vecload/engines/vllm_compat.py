"""All that depends on vLLM's release or on the device: its arguments, and how vectors are asked for.

Checked with vLLM 0.20 on GPUs and 0.32 on CPUs. Names are looked up in vLLM's own classes rather than told from its
version, so that a release between or after them works too.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vecload.documents import FloatMatrix, TokenBatch

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
    if not gpu_present():
        # In-process: starts in 2 s instead of 23 s, and uses all cores. Threads cannot be set once torch is imported.
        defaults |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def engine_arguments(model: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for `vllm.LLM`: ours, with the user's on top.

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
    arguments |= _cpu_arguments(model, max_len, args) if on_cpu() else _gpu_arguments(max_len)
    return arguments | {key: value for key, value in args.items() if key != "pooler_config"}


def pooler_config(pooling: str, own: Mapping[str, Any] | None = None) -> Any:
    """Raw pooled vectors: vecload normalises by itself, in float32, so that one rule holds for every engine."""
    from vllm.config import PoolerConfig

    names = {field.name for field in dataclasses.fields(PoolerConfig)}
    raw = "use_activation" if "use_activation" in names else "normalize"
    return PoolerConfig(**{"pooling_type": pooling, raw: False, **(own or {})})


def _gpu_arguments(max_len: int) -> dict[str, Any]:
    from vllm.platforms import current_platform

    memory = current_platform.get_device_total_memory()
    # 65,536 tokens in a step keep a large GPU busy; a small one has no memory for their activations.
    step = 65536 if memory > 39 * GIB else 32768 if memory > 20 * GIB else 16384
    return {
        # Older GPUs (before Ampere) have no bfloat16: vLLM chooses there.
        "dtype": "bfloat16" if current_platform.has_device_capability(80) else "auto",
        "max_num_batched_tokens": max(step, max_len),
        "max_num_seqs": 2048,
    }


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


def pooled(llm: Any, batch: TokenBatch) -> FloatMatrix:
    """The pooled vectors of a batch as vLLM gives them, float32 of shape (len(batch), dimensions)."""
    import torch

    flat, ends = batch.ids.tolist(), batch.offsets.tolist()
    prompts = [{"prompt_token_ids": flat[start:end]} for start, end in pairwise(ends)]
    outputs = llm.encode(prompts, pooling_task="embed", use_tqdm=False)
    vectors = torch.stack([output.outputs.data for output in outputs])
    return np.asarray(vectors.to(dtype=torch.float32, device="cpu").numpy(), dtype=np.float32)


def engine_is_dead(error: Exception) -> bool:
    """Whether vLLM's own process is gone, as against one batch that failed."""
    return type(error).__name__ == "EngineDeadError"


def is_unknown(architecture: str, reason: str) -> bool:
    """Whether an engine did not start because this vLLM does not know the architecture.

    An architecture that is not in the list may still work (by another name, or through transformers), so the list
    alone does not tell.
    """
    from vllm import ModelRegistry

    named = re.search("architecture|model type|no vLLM implementation", reason, re.IGNORECASE)
    return bool(named) and architecture not in ModelRegistry.get_supported_archs()
