"""Where the project is, the smallest run, what a request composes to, and ``train.py`` in this process."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from tielab.config import plain, register

ROOT = Path(__file__).resolve().parents[1]

TINY = (
    "model=nano", "vocab=char", "data.tokenizer.byte_fallback=false", "data=text", "data.block_size=16",
    "data.batch_size=8", "data.eval_batch_size=64", "trainer.num_threads=1", "logger=none",
    "budget.num_validations=2", "budget.tokens=4096",
)  # fmt: skip
"""Overrides for a run of 32 steps that takes a second."""


def config_of(*overrides: str) -> dict[str, Any]:
    """The resolved config of a run; nothing is checked."""
    register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return plain(compose("config", overrides=list(overrides)))


def call_main(arguments: Iterable[object], folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of ``python train.py ARGUMENTS`` in a folder."""
    from tielab import launch

    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["train.py"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    return launch.main(ROOT / "conf", [str(argument) for argument in arguments])
