"""A whole Lightning fit of a tiny model on generated tokens, without Hydra or files."""

from dataclasses import dataclass, field

import lightning.pytorch as L
import torch
from torch.utils.data import DataLoader

from tielab.models.minigpt import MiniGPT
from tielab.training.callbacks import TieGuard, TrainLog, ValidateAt
from tielab.training.task import LanguageModelTask
from tielab.training.throughput import ThroughputMeter, TrainingClock

V, T, B = 64, 8, 4
OPTIMIZER = {
    "learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1,
    "embedding_weight_decay": 0.0, "gradient_clip_norm": 1.0, "fused": True,
    "embedding_learning_rate_scale": 1.0, "head_learning_rate_scale": 1.0,
}  # fmt: skip
SCHEDULE = {"warmup_fraction": 0.1, "final_fraction": 0.1}


class FakeClock:
    """Seconds that pass only when somebody says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class RowLogger(L.loggers.logger.Logger):
    """Keeps every logged row."""

    name = version = ""

    def __init__(self):
        super().__init__()
        self.rows = []

    def log_metrics(self, metrics, step=None):
        self.rows.append({"step": step, **metrics})

    def log_hyperparams(self, *args, **kwargs):
        pass


def batches(num_batches, sizes=None):
    """Training batches (ids, targets) of B windows each, or of the given sizes."""
    g = torch.Generator().manual_seed(0)
    windows = [torch.randint(V, (sizes[i] if sizes else B, T + 1), generator=g) for i in range(num_batches)]
    return [(w[:, :-1], w[:, 1:]) for w in windows]


def evaluation_batches():
    """Three batches in which every token counts and stands for two bytes."""
    return [(x, y, torch.ones_like(x, dtype=torch.bool), torch.full_like(x, 2)) for x, y in batches(3)]


def task(num_steps, tied=True, dropout=0.0, accumulate=1, scheme=None, rates=None):
    model = MiniGPT(V, T, 32, 1, 4, 32, dropout=dropout, tied=tied, **(scheme or {}))
    return LanguageModelTask(
        model,
        {**OPTIMIZER, **(rates or {})},
        SCHEDULE,
        num_steps=num_steps,
        tokens_per_step=B * T * accumulate,
        content_hash="abc",
        identity={"model.tied": tied},
        seed=0,
    )


@dataclass
class Fit:
    """What a fit leaves behind."""

    num_steps: int
    accumulate: int = 1
    tied: bool = True
    num_validations: int = 1
    log_every: int = 2
    warmup_steps: int = 0
    sizes: list[int] | None = None
    clock: object = None
    extra: list = field(default_factory=list)
    train: list | None = None
    scheme: dict = field(default_factory=dict)
    """Arguments of the model."""
    rates: dict = field(default_factory=dict)
    """Keys of the optimizer."""
    dropout: float = 0.0

    def __post_init__(self):
        self.task = task(self.num_steps, self.tied, self.dropout, self.accumulate, self.scheme, self.rates)
        synchronize_every = self.log_every * self.accumulate
        self.timer = (
            TrainingClock(synchronize_every, self.clock) if self.clock else TrainingClock(synchronize_every)
        )
        self.meter = ThroughputMeter(self.timer, self.log_every, self.warmup_steps)
        self.guard = TieGuard(self.tied, self.task.untie_step)
        self.logger = RowLogger()

    def run(self, checkpoint=None):
        """Train, or go on from a checkpoint."""
        schedule = ValidateAt(self.num_steps, self.num_validations)
        callbacks = [self.meter, schedule, TrainLog(self.log_every, self.meter), self.guard, *self.extra]
        trainer = L.Trainer(
            accelerator="cpu", max_epochs=1, max_steps=self.num_steps, logger=self.logger,
            profiler=self.timer, accumulate_grad_batches=self.accumulate, num_sanity_val_steps=0,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            use_distributed_sampler=False, callbacks=callbacks,
        )  # fmt: skip
        train = self.train or batches(self.num_steps * self.accumulate, self.sizes)
        loader = DataLoader(train, batch_size=None)
        trainer.fit(
            self.task, loader, DataLoader(evaluation_batches(), batch_size=None), ckpt_path=checkpoint
        )
        return self
