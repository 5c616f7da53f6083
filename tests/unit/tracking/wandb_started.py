"""A W&B run with the config of a small model, as a training starts it."""

import logging
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import WandbLogger

from tielab.tracking.wandb import wandb_logger
from wandb_server import StandIn

CONFIG = {
    "model": {"tied": False, "vocab_size": 4096, "embed_dim": 128, "num_heads": 4},
    "data": {"tokenizer": {"vocab_size": 4096}},
    "optimizer": {"learning_rate": 0.003},
    "study": {"phase": None},
    "seed": 3,
}
DUMMY_KEY = "0" * 40


def start(save_dir: Path, run_id: str = "run-1", mode: str = "offline", **more: Any) -> WandbLogger:
    arguments: dict[str, Any] = {
        "project": "tielab", "entity": None, "mode": mode, "save_dir": save_dir, "tags": ["smoke", 128],
        "run_id": run_id, "name": "untied-128-s3", "group": "sweep-7", "job_type": "untied",
        "config": CONFIG,
    }  # fmt: skip
    return wandb_logger(**arguments | more)


def own_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of ours; what is merely told depends on the level that an earlier test's run has set."""
    own = [record for record in caplog.records if record.name.startswith("tielab")]
    return [record.getMessage() for record in own if record.levelno >= logging.WARNING]


def run_told(message: str, server: StandIn) -> None:
    """Run the ``wandb sync`` command that a message tells, as its reader would."""
    match = re.search(r"`wandb (sync [^`]*)`", message)
    assert match is not None, message
    command = [sys.executable, "-m", "wandb", *shlex.split(match[1])]
    subprocess.run(
        command, env={**os.environ, "WANDB_BASE_URL": server.url, "WANDB_MODE": "online"},
        check=True, timeout=120, capture_output=True,
    )  # fmt: skip
