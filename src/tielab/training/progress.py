"""How far a run is: a bar in a terminal, one line every few seconds elsewhere."""

import math
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as L
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from tielab.sweep import is_sweep
from tielab.training.task import LanguageModelTask


class ProgressBar(L.Callback):
    """Shows tokens done, loss, tokens per second and time left, on standard error of the first process.

    Args:
        bar_seconds: time between two updates of the bar in a terminal.
        line_seconds: time between two lines elsewhere.
    """

    def __init__(self, bar_seconds: float = 0.25, line_seconds: float = 5.0):
        self._bar_seconds = bar_seconds
        self._line_seconds = line_seconds
        self._bar: Progress | None = None
        self._shown_at = 0.0
        self._started_at = 0.0
        self._first_tokens = 0
        self._job = ""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, LanguageModelTask)
        if not trainer.is_global_zero:
            return
        self._started_at = self._shown_at = time.monotonic()
        self._first_tokens = pl_module.tokens_seen
        folder = Path(trainer.default_root_dir)
        if is_sweep(folder.parent):  # several may train at the same time
            self._job = f"job {folder.name}: "
        if sys.stderr.isatty():
            self._bar = _bar(total=pl_module.num_steps * pl_module.tokens_per_step)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        if not trainer.is_global_zero:
            return
        now = time.monotonic()
        if now - self._shown_at >= (self._bar_seconds if self._bar else self._line_seconds):
            self._shown_at = now
            self._show(pl_module, now - self._started_at)

    def _show(self, task: L.LightningModule, elapsed: float) -> None:
        assert isinstance(task, LanguageModelTask)
        # Collected where the clock has waited for the device anyway; reading a fresher one would wait again.
        loss = task.last_loss
        if self._bar is not None:
            self._bar.update(TaskID(0), completed=task.tokens_seen, loss=loss, refresh=True)
            return
        total = task.num_steps * task.tokens_per_step
        rate = (task.tokens_seen - self._first_tokens) / elapsed
        left = timedelta(seconds=round((total - task.tokens_seen) / rate))
        print(
            f"{self._job}{task.tokens_seen:,}/{total:,} tokens  loss {loss:.3f}  {rate:,.0f} tokens/s  "
            f"{left} left",
            file=sys.stderr,
            flush=True,
        )

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero and self._bar is None:
            self._show(pl_module, time.monotonic() - self._started_at)
        self._stop()

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        self._stop()


class _Loss(ProgressColumn):
    def render(self, task: Task) -> Text:
        loss = task.fields["loss"]
        return Text("loss -" if math.isnan(loss) else f"loss {loss:.3f}")


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:,.0f} tokens/s")


def _bar(total: int) -> Progress:
    bar = Progress(
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} tokens"),
        _Loss(),
        _Rate(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
    )
    bar.add_task("training", total=total, loss=float("nan"))
    bar.start()
    return bar
