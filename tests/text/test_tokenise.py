import threading
from pathlib import Path

import numpy as np
import pytest

from tests.text.minilm import FOLDER
from vecload.errors import UsageError
from vecload.text.tokenise import Tokenizer

TEXTS = [
    "",
    " ",
    "hello",
    "这是一个用于测试的中文文本文件",
    "😀🎉 emoji",
    "def f(x):\n    return x**2",
    "éàü ÑÑ",
    "[SEP] a special token in the text [MASK]",
    "x" * 500,
    "many words " * 2000,
    *("word " * length for length in range(252, 258)),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(FOLDER)


@pytest.mark.parametrize("max_tokens", [3, 16, 256])
@pytest.mark.parametrize("prompt", ["", "passage: "])
def test_the_ids_are_those_of_transformers(tokenizer: Tokenizer, max_tokens: int, prompt: str) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(str(FOLDER))
    batch, truncated = tokenizer.encode(TEXTS, prompt=prompt, max_tokens=max_tokens)
    wanted = [reference(prompt + text, truncation=True, max_length=max_tokens)["input_ids"] for text in TEXTS]
    assert [ids.tolist() for ids in batch] == wanted
    assert batch.ids.dtype == np.int32
    assert batch.offsets.dtype == np.int32
    lengths = [len(reference(prompt + text)["input_ids"]) for text in TEXTS]
    assert truncated == [index for index, length in enumerate(lengths) if length > max_tokens]


def test_no_texts(tokenizer: Tokenizer) -> None:
    batch, truncated = tokenizer.encode([], prompt="", max_tokens=16)
    assert (len(batch), batch.tokens, truncated) == (0, 0, [])


@pytest.mark.parametrize("filler", ["word ", "\u200b", "\u0301", "x"])
def test_the_head_of_a_very_long_text_is_what_the_whole_text_would_give(tokenizer: Tokenizer, filler: str) -> None:
    text = filler * 50_000 + " the end"
    batch, truncated = tokenizer.encode([text], prompt="", max_tokens=32)
    whole = tokenizer.raw.encode(text).ids
    wanted = whole if len(whole) <= 32 else [*whole[:31], whole[-1]]
    assert batch.ids.tolist() == wanted
    assert truncated == ([0] if len(whole) > 32 else [])


def test_counts_leave_special_tokens_out(tokenizer: Tokenizer) -> None:
    assert tokenizer.special_tokens == 2
    assert tokenizer.counts(["", "hello world", "word " * 1000]) == [0, 2, 1000]


def test_threads_with_different_limits_do_not_disturb_each_other(tokenizer: Tokenizer) -> None:
    wrong: list[int] = []

    def encode(max_tokens: int) -> None:
        for _ in range(30):
            batch, _ = tokenizer.encode(["word " * 300] * 4, prompt="", max_tokens=max_tokens)
            wrong.extend(len(ids) for ids in batch if len(ids) != max_tokens)

    threads = [threading.Thread(target=encode, args=(limit,)) for limit in (8, 16, 32, 64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_limit_that_leaves_no_room_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="special tokens"):
        tokenizer.encode(["a"], prompt="", max_tokens=2)


def test_the_hash_tells_tokenizers_apart(tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert Tokenizer.load(FOLDER).hash == tokenizer.hash
    (tmp_path / "tokenizer.json").write_text(
        (FOLDER / "tokenizer.json").read_text(encoding="utf-8").replace('"[UNK]"', '"[NIL]"'),
        encoding="utf-8",
    )
    assert Tokenizer.load(tmp_path).hash != tokenizer.hash


def test_a_folder_without_tokenizer_json_is_converted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for name in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json", "config.json"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    batch, _ = Tokenizer.load(tmp_path).encode(TEXTS, prompt="", max_tokens=256)
    assert batch.ids.tolist() == tokenizer.encode(TEXTS, prompt="", max_tokens=256)[0].ids.tolist()


def test_a_broken_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer\.json cannot be read"):
        Tokenizer.load(tmp_path)


def test_a_folder_without_any_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="neither a tokenizer"):
        Tokenizer.load(tmp_path)
