"""How the worker feeds its core: never dry, never too full, and right when a step fails. The core is a stand-in."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from vecload.documents import TokenBatch
from vecload.embedding import packed
from vecload.engines import frames
from vecload.engines.worker import Worker

ARGUMENTS = {"max_model_len": 50, "max_num_batched_tokens": 10}
MODEL = {"normalize": False, "config": {"vocab_size": 1000}}


class Core:
    """Finishes the last text first, one a step; a text's vector is its first token and its length."""

    def __init__(self, fails: dict[int, Exception]) -> None:
        self.fails = fails
        """The steps that fail, counted from 0."""
        self.steps = 0
        self.texts: dict[str, list[int]] = {}
        self.added = 0
        self.most = 0

    def add(self, ids: list[int]) -> str:
        self.added += 1
        self.texts[str(self.added)] = ids
        self.most = max(self.most, sum(map(len, self.texts.values())))
        return str(self.added)

    def step(self) -> list[tuple[str, torch.Tensor]]:
        self.steps += 1
        if error := self.fails.get(self.steps - 1):
            raise error
        name, ids = self.texts.popitem()
        return [(name, torch.tensor([float(ids[0]), float(len(ids))]))]

    def abort(self, names: list[str]) -> None:
        for name in names:
            del self.texts[name]


def batch(*texts: list[int]) -> TokenBatch:
    return packed([np.array(ids, dtype=np.int32) for ids in texts])


def serve(core: Core, *batches: TokenBatch) -> dict[int, list[list[float]] | str]:
    """What the worker answers: vectors, or why there are none."""
    requests, replies = io.BytesIO(), io.BytesIO()
    for number, one in enumerate(batches):
        frames.write_batch(requests, number, one)
    frames.write_end(requests)
    requests.seek(0)
    Worker(core, ARGUMENTS, MODEL).serve(requests, replies)
    replies.seek(0)
    answers = {}
    while replies.tell() < len(replies.getvalue()):
        _, number, content = frames.read_reply(replies)
        answers[number] = content if isinstance(content, str) else content.tolist()
    return answers


def test_each_batch_gets_its_own_vectors_whatever_the_order() -> None:
    answers = serve(Core({}), batch([1, 1], [2]), batch([3, 3, 3]), batch([4], [5], [6, 6]))
    assert answers == {0: [[1, 2], [2, 1]], 1: [[3, 3]], 2: [[4, 1], [5, 1], [6, 2]]}


def test_the_core_holds_three_steps_and_not_the_whole_queue() -> None:
    core = Core({})
    assert len(serve(core, *(batch([n] * 5, [n] * 5) for n in range(20)))) == 20
    assert core.most <= 3 * 10 + 9


def test_out_of_memory_fails_what_is_under_way_and_the_rest_goes_on() -> None:
    core = Core({1: torch.OutOfMemoryError("no memory for 2 GiB")})
    answers = serve(core, *(batch([n] * 10) for n in range(1, 7)))
    failed = {number for number, answer in answers.items() if isinstance(answer, str)}
    assert failed
    assert all("out of memory" in str(answers[number]) for number in failed)
    assert {number: answers[number] for number in set(answers) - failed} == {
        number: [[number + 1, 10]] for number in set(range(6)) - failed
    }
    assert 5 not in failed


def test_any_other_failure_ends_the_worker() -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"):
        serve(Core({0: RuntimeError("illegal memory access")}), batch([1]))
