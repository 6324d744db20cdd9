"""Tiny random models for tests that need an architecture, not a meaning."""

from __future__ import annotations

import json
from pathlib import Path

TEXTS = [
    "The engine pools the last token of every text.",
    "Vectors of equal texts are equal.",
    "数据库索引可以加快查询速度。",
    "def add(a, b):\n    return a + b",
]


def tiny_qwen(folder: Path, *, tokens: int = 512) -> Path:
    """A random Qwen3 of two layers with last-token pooling, normalised, 64 dimensions wide."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import Qwen3Config, Qwen3Model

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(TEXTS * 4, vocab_size=1000, special_tokens=["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(7)
    config = Qwen3Config(
        vocab_size=1024,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=tokens,
        tie_word_embeddings=True,
    )
    Qwen3Model(config).save_pretrained(folder)
    pooling = {"word_embedding_dimension": 64, "pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}
    write(folder, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"})
    write(folder, "1_Pooling/config.json", pooling)
    write(folder, "modules.json", modules("Transformer", "Pooling", "Normalize"))
    return folder


def bert_files(folder: Path, **config: object) -> Path:
    """A folder that reads like a sentence-transformers BERT; its weights are no weights."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = {"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 32, "max_position_embeddings": 512}
    write(folder, "config.json", {**shape, **config})
    write(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})
    write(folder, "modules.json", modules("Transformer", "Pooling", "Normalize"))
    write(folder, "tokenizer.json", {})
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def modules(*kinds: str) -> list[dict[str, object]]:
    paths = {kind: "" if kind == "Transformer" else f"{index}_{kind}" for index, kind in enumerate(kinds)}
    return [
        {"idx": index, "name": str(index), "path": paths[kind], "type": f"sentence_transformers.models.{kind}"}
        for index, kind in enumerate(kinds)
    ]


def write(folder: Path, name: str, content: object) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
