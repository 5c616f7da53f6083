"""A model of one parameter, and a short training of it."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers.logger import Logger
from torch.utils.data import DataLoader

TOKENS_PER_STEP = 8


class OneParameter(pl.LightningModule):
    """Logs what the harness's task logs, from a loss that is known in advance."""

    def __init__(self, learning_rate: float = 0.5) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        loss = (self.weight - batch.mean()) ** 2
        self.log("train/loss", loss)
        self.log("tokens", torch.tensor(TOKENS_PER_STEP * (self.global_step + 1), dtype=torch.float64))
        return loss

    def validation_step(self, batch: torch.Tensor, index: int) -> None:
        self.log("val/loss", (self.weight - batch.mean()) ** 2)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["learning_rate"])


class MetricOfAUser(pl.Callback):
    """Logs a metric the harness has never heard of, from the third step on."""

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        if index >= 2:
            module.log("my/metric", float(index))


def fit(loggers: list[Logger], num_steps: int, *, checkpoint: Path | None = None, **more: Any) -> pl.Trainer:
    """Train a ``OneParameter`` over epochs of 4 steps and validate every second step."""
    numbers = DataLoader(torch.arange(4.0).reshape(4, 1))
    settings: dict[str, Any] = {
        "accelerator": "cpu", "max_steps": num_steps, "logger": loggers, "log_every_n_steps": 1,
        "val_check_interval": 2, "check_val_every_n_epoch": None, "num_sanity_val_steps": 0,
        "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
    }  # fmt: skip
    trainer = pl.Trainer(**settings | more)
    trainer.fit(OneParameter(), numbers, numbers, ckpt_path=checkpoint, weights_only=False)
    return trainer
