"""What every test needs: a private cache, a tiny corpus, and ``train.py`` as a person would call it."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

os.environ.update(
    WANDB_MODE="offline", WANDB_ERROR_REPORTING="false", WANDB_SILENT="true", OMP_WAIT_POLICY="PASSIVE"
)

TINY = (
    "model=nano", "vocab=char", "data.tokenizer.byte_fallback=false", "data=text", "data.block_size=16",
    "data.batch_size=8", "data.eval_batch_size=64", "trainer.num_threads=1", "logger=none",
    "budget.num_validations=2", "budget.tokens=4096",
)  # fmt: skip
"""Overrides for a run of 32 steps that takes a second."""


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """The token cache shared by all tests of this process."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["TIELAB_CACHE"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Text of 200 paragraphs over 64 characters, with some structure to learn."""
    draw = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"  # with space and newline: 64
    words = ["".join(draw.choices(letters, k=draw.randint(2, 7))) for _ in range(300)]
    paragraphs = [" ".join(draw.choices(words, k=60)) for _ in range(200)]
    path = tmp_path_factory.mktemp("corpus") / "tiny.txt"
    path.write_text("\n\n".join(paragraphs), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny(corpus, cache_dir):
    """Overrides for a tiny run on the tiny corpus."""
    return (*TINY, f"data.paths=[{corpus}]")


@pytest.fixture
def train(cache_dir, tmp_path):
    """``python train.py ARGUMENTS`` in an empty folder: exit status, standard output, standard error."""

    def run(*arguments, cwd=tmp_path, timeout=120, env=None):
        return subprocess.run(
            [sys.executable, str(ROOT / "train.py"), *map(str, arguments)],
            cwd=cwd, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )  # fmt: skip

    return run


@pytest.fixture
def tielab(cache_dir, tmp_path):
    """``tielab ARGUMENTS`` in the same way."""

    def run(*arguments, cwd=tmp_path, timeout=120):
        command = [sys.executable, "-m", "tielab.cli", *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout)

    return run
