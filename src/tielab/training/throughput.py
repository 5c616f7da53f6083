"""Training tokens per second: tokens really consumed over synchronised time really spent on them."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import lightning.pytorch as L
import numpy as np
import torch
from lightning.pytorch.profilers import Profiler

from tielab.record import Throughput
from tielab.training.strategy import batch_share

# Lightning brackets every training step in these two; validation, checkpoints, logging and the
# other callbacks' hooks after a step lie outside.
TIMED_ACTIONS = ("[_TrainingEpochLoop].train_dataloader_next", "run_training_batch")
NOT_TIMED = nullcontext()


class TrainingClock(Profiler):
    """Seconds spent on waiting for training batches and on training with them.

    Args:
        synchronize_every: micro-batches between two waits for the device; only then ``seconds`` is exact.
        clock: seconds, increasing.
    """

    def __init__(self, synchronize_every: int, clock: Callable[[], float] = time.perf_counter):
        super().__init__()
        self.seconds = 0.0
        self._synchronize_every = synchronize_every
        self._clock = clock
        self._started = 0.0
        self._num_batches = 0

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        """Lightning opens some 80 of these a step; those that are not timed cost nothing."""
        return super().profile(action_name) if action_name in TIMED_ACTIONS else NOT_TIMED

    def start(self, action_name: str) -> None:
        if action_name in TIMED_ACTIONS:
            self._started = self._clock()

    def stop(self, action_name: str) -> None:
        if action_name not in TIMED_ACTIONS:
            return
        if action_name == "run_training_batch":
            self._num_batches += 1
            if self._num_batches % self._synchronize_every == 0 and torch.cuda.is_available():
                torch.cuda.synchronize()
        self.seconds += self._clock() - self._started

    def summary(self) -> str:
        return ""


class ThroughputMeter(L.Callback):
    """Tokens per second of every interval of ``interval_steps`` optimizer steps after the warm-up.

    Args:
        clock: the trainer's profiler.
        interval_steps: optimizer steps in an interval.
        warmup_steps: optimizer steps left out at the start (allocator, caches, compilation), rounded up
            to whole intervals: at their ends the clock has waited for the device.
    """

    def __init__(self, clock: TrainingClock, interval_steps: int, warmup_steps: int):
        self.tokens_per_second: list[float] = []
        self._clock = clock
        self._interval_steps = interval_steps
        self._warmup_steps = -(-warmup_steps // interval_steps) * interval_steps
        self._num_batches = 0
        self._num_shares = 1
        self._num_tokens = 0
        self._seconds = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        _, self._num_shares = batch_share(trainer)

    @property
    def latest(self) -> float | None:
        """Of the last complete interval."""
        return self.tokens_per_second[-1] if self.tokens_per_second else None

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        assert isinstance(batch, list | tuple)
        self._num_batches += 1
        self._num_tokens += batch[0].numel() * self._num_shares
        interval = self._interval_steps * trainer.accumulate_grad_batches
        warmup = self._warmup_steps * trainer.accumulate_grad_batches
        if self._num_batches <= warmup:
            self._restart()
        elif (self._num_batches - warmup) % interval == 0:
            self.tokens_per_second.append(self._num_tokens / (self._clock.seconds - self._seconds))
            self._restart()

    def _restart(self) -> None:
        self._num_tokens = 0
        self._seconds = self._clock.seconds

    def state_dict(self) -> dict[str, Any]:
        """The intervals and the seconds so far, for a checkpoint."""
        return {"tokens_per_second": self.tokens_per_second, "seconds": self._clock.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after the intervals of a checkpoint; the interval it cut through is left out."""
        self.tokens_per_second = list(state_dict["tokens_per_second"])
        self._clock.seconds += state_dict["seconds"]
        self._restart()

    def summary(self, num_processes: int) -> Throughput | None:
        """Median and quartiles, or None if no interval was completed."""
        if not self.tokens_per_second:
            return None
        q1, median, q3 = (float(q) for q in np.quantile(self.tokens_per_second, [0.25, 0.5, 0.75]))
        return Throughput(
            median=median,
            q1=q1,
            q3=q3,
            per_device=median / num_processes,
            num_intervals=len(self.tokens_per_second),
            warmup_steps=self._warmup_steps,
        )
