"""How fast a whole `vecload sync` is beside the engine alone: one Parquet file, no chunking, SQLite ledger, no store.

    python -m benchmarks.sync --model Qwen/Qwen3-Embedding-0.6B

The time counts from the moment the engine has started to the end of the run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import vecload
from benchmarks import texts
from vecload.engines.vllm_pooling import VllmPoolingEngine


def sync(model: str, engine: dict[str, Any], name: str) -> tuple[float, vecload.RunReport]:
    """The seconds after the engine's start, and the run's report."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    started = []
    start = VllmPoolingEngine.start

    def noted(self: VllmPoolingEngine) -> None:
        start(self)
        started.append(time.perf_counter())

    VllmPoolingEngine.start = noted  # type: ignore[method-assign]  # the run itself does not tell this moment
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        strings = texts.make(name)
        pq.write_table(pa.table({"id": range(len(strings)), "text": strings}), file, row_group_size=2000)
        report = vecload.sync(
            str(file),
            "null:",
            model=model,
            settings={
                "chunk": "none",
                "source": {"kind": "tables", "url": str(file), "text": "text", "key": "id"},
                "ledger": str(Path(folder) / "ledger.db"),
                "transform": {"engine": {"kind": "vllm", **engine}},
            },
        )
    VllmPoolingEngine.start = start  # type: ignore[method-assign]
    return time.perf_counter() - started[0], report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dummy", action="store_true", help="random weights; the folder needs none")
    parser.add_argument("--sets", default="mid,short")
    parser.add_argument("--engine", type=json.loads, default={}, help="the engine's settings, as JSON")
    given = parser.parse_args()
    if given.dummy:
        given.engine.setdefault("args", {})["load_format"] = "dummy"
    for name in given.sets.split(","):
        seconds, report = sync(given.model, given.engine, name)
        found = report.to_dict()
        print(f"{name}: {found['tokens'] / seconds:,.0f} tok/s ({found['tokens']:,} tokens in {seconds:.1f} s)")
        print(f"  {json.dumps({key: found[key] for key in ('chunks', 'stages', 'exit_code')})}")


if __name__ == "__main__":
    main()
