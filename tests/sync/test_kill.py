"""Pulling the plug: after `kill -9` at any time, the next run ends where one that was never killed ends."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.world import World, prose

ROOT = Path(__file__).parents[2]
RUN = """
import sys
from pathlib import Path
from tests.world import World
world = World(Path(sys.argv[1]))
world.settings["transform"] = {"engine": {"kind": "deterministic", "max_texts_per_batch": 8, "delay_seconds": 0.02}}
print("ready", flush=True)
world.sync()
"""


def run(folder: Path, kill_after: float | None = None) -> int:
    """Syncs in a process of its own; kills it so many seconds after the imports."""
    process = subprocess.Popen([sys.executable, "-c", RUN, str(folder)], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        process.wait(kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    return process.returncode


def content(world: World) -> list[tuple[object, ...]]:
    fields = ("document", "ordinal", "start", "end", "text")
    return [tuple((point.payload or {})[field] for field in fields) for point in world.points()]


@pytest.mark.parametrize("seed", range(6))
def test_the_next_run_mends_what_a_killed_one_left(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = World(tmp_path)
    world.write_many(60)
    if seed % 2:
        assert run(tmp_path) == 0
        world.write("doc003.md", prose(1003))
        world.write("doc004.md", prose(4, 9))
        (world.docs / "doc005.md").unlink()
        world.write_many(40, "more/")
    run(tmp_path, chance.uniform(0.4, 1.6))
    if chance.random() < 0.5:
        world.write("doc003.md", prose(3))
        (world.docs / "doc004.md").unlink()
    assert run(tmp_path) == 0

    (tmp_path / "untouched").mkdir()
    untouched = World(tmp_path / "untouched")
    shutil.copytree(world.docs, untouched.docs, dirs_exist_ok=True)
    untouched.sync()
    assert content(world) == content(untouched)
    assert len({point.id for point in world.points()}) == len(content(world))
