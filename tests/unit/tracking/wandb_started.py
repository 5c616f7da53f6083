"""A W&B run with the config of a small model, as a training starts it."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import WandbLogger

from tielab.tracking.wandb import wandb_logger

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


def own_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("tielab")]
