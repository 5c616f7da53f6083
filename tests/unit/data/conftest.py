"""Small generated text and the data config that reads it."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

WORDS = ["the", "of", "and", "tied", "head", "matrix", "token", "loss", "model", "step", "width", "row"]
WORDS += ["café", "naïve", "東京", "scores,", "learns.", "😀"]


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    """300 paragraphs of random words, some not ASCII."""
    generator = random.Random(0)
    paragraphs = [" ".join(generator.choices(WORDS, k=generator.randint(5, 25))) for _ in range(300)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A data config for local text with a byte tokenizer; ``tokenizer`` entries and keys can be given."""

    def make(*paths: Path, tokenizer: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
        return {
            "corpus": "text",
            "paths": [str(path) for path in paths],
            "document": None,
            "text_key": "text",
            "url": None,
            "hub": None,
            "split": "hash",
            "tokenizer": {"kind": "byte", "vocab_size": 256, "path": None, "byte_fallback": False}
            | (tokenizer or {}),
            "block_size": 16,
            "train_tokens": None,
            "stride": 16,
            "eval_stride": 8,
            "check_strides": [],
            "batch_size": 8,
            "eval_batch_size": 4,
            "num_workers": 0,
            "seed": 0,
            "cache_dir": str(tmp_path / "cache"),
        } | keys

    return make


@pytest.fixture
def ordinary_user(tmp_path: Path) -> AbstractContextManager[None]:
    """A context without the rights of root, who may read and write everything."""
    for folder in [tmp_path, *tmp_path.parents]:
        folder.chmod(0o755)
        if folder.name.startswith("pytest-of-"):
            break
    return _without_root()


@contextmanager
def _without_root() -> Iterator[None]:
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
