"""32 texts of all kinds: short, over the small model's 256 tokens, Chinese, code, emoji."""

from __future__ import annotations

_PROSE = (
    "A collection is kept in step with its source: what is new is embedded, what vanished is deleted, and what did not "
    "change is left alone. "
)
_CODE = "for item in items:\n    if item.ready:\n        queue.put(item)  # {n}\n"

TEXTS: list[str] = [
    "a",
    "Hello.",
    "?",
    "The cat sat on the mat.",
    "the cat sat on the mat",
    "How many planets are there?",
    "12345 67890",
    "   leading and trailing   ",
    *(_PROSE * n for n in (1, 2, 4, 8, 10, 12, 20, 40)),
    "数据库索引可以加快查询速度。",
    "今天天气很好,我们去公园散步吧。" * 5,
    "人工智能正在改变世界。" * 40,
    "日本語のテキストも埋め込めます。",
    "def add(a: int, b: int) -> int:\n    return a + b\n",
    "SELECT id, name FROM users WHERE age > 30 ORDER BY name;",
    *(_CODE.format(n=n) * n for n in (2, 10, 30)),
    '{"key": [1, 2, {"nested": null}]}',
    "🚀",
    "Party 🎉🎉🎉 at 10 ✅",
    "👩‍👩‍👧‍👦 family, 🇩🇪 flag, é ü ß ñ",
    "Ünïcödé ... naïve café",
    "line one\nline two\n\nline four\ttab",
    "x" * 500,
]
