"""What watches a run and may stop it: the tie guard, signals, the validation schedule, the log."""

import signal
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import lightning.pytorch as L
import torch
from torch.optim import Optimizer

from tielab.models.minigpt import MiniGPT
from tielab.models.tying import BrokenTieError, identity_problem, tie_problem
from tielab.training.task import LanguageModelTask
from tielab.training.throughput import ThroughputMeter


class TieGuard(L.Callback):
    """Fails the run as soon as the model is not tied (or untied) as configured.

    Looks after the build (``Fit.run`` asks), after the strategy's set-up, after a checkpoint load,
    after the first step, at every validation, and at the end; in between, that the parameters are
    still the same or two, before every batch.

    Args:
        tied: as configured.
        untie_step: a tied model must be one matrix for so many optimizer steps, and two from then on.
    """

    def __init__(self, tied: bool, untie_step: int | None = None):
        self.tied = tied
        self.untie_step = untie_step
        self.intact = True
        self.num_checks = 0

    @property
    def observed(self) -> bool | None:
        """Whether the model was tied at every look; None if there was none.

        Of a model that is split in training: whether it was so up to the split, and untied after it.
        """
        if self.num_checks == 0 and self.intact:
            return None
        return self.tied if self.intact else not self.tied

    def check(
        self, model: MiniGPT, when: str, optimizers: Iterable[Optimizer] = (), *, split: bool = False
    ) -> None:
        """Raise BrokenTieError if the tie is not as configured, before or after the split."""
        optimized = [p for o in optimizers for group in o.param_groups for p in group["params"]]
        self._require_none(tie_problem(model, self.tied and not split, optimized or None), when, split)
        self.num_checks += 1

    def _require_none(self, problem: str | None, when: str, split: bool) -> None:
        if problem is not None:
            self.intact = False
            raise BrokenTieError(f"{when}{', after the split' if split else ''}: {problem}")

    def _is_split(self, task: LanguageModelTask) -> bool:
        # In tokens, which a checkpoint brings back first of all, and which tell the parts of a step apart.
        return self.untie_step is not None and task.tokens_seen > self.untie_step * task.tokens_per_step

    def _check(self, trainer: L.Trainer, task: L.LightningModule) -> None:
        assert isinstance(task, LanguageModelTask)
        when = f"at step {trainer.global_step}"
        self.check(task.model, when, trainer.optimizers, split=self._is_split(task))

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._check(trainer, pl_module)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._check(trainer, pl_module)

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        # A tie broken while the model is sharded would fail in the forward pass, in torch's words.
        assert isinstance(pl_module, LanguageModelTask)
        split = self._is_split(pl_module)
        problem = identity_problem(pl_module.model, self.tied and not split)
        self._require_none(problem, f"at step {trainer.global_step}", split)

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        if trainer.global_step == 1 and not trainer.fit_loop.epoch_loop._should_accumulate():
            self._check(trainer, pl_module)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._check(trainer, pl_module)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._check(trainer, pl_module)


class RunInterruptedError(Exception):
    """A signal asked the run to stop; a checkpoint of its last complete step was written."""


class StopOnSignal(L.Callback):
    """On SIGINT or SIGTERM: finish the optimizer step, write a checkpoint, stop.

    Args:
        checkpoint: where the state goes; written inside the training loop, so a resumed run goes on
            with the very next batch.
        check_every_n_steps: with several processes, how often they agree on whether to stop.
        validation_steps: a stop at one of these waits for its validation, which a resumed run would skip.
    """

    def __init__(self, checkpoint: Path, check_every_n_steps: int, validation_steps: set[int]):
        self._checkpoint = checkpoint
        self._check_every_n_steps = check_every_n_steps
        self._validation_steps = validation_steps
        self._received: int | None = None
        self._began = False
        self._before: dict[int, Any] = {}

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # What Lightning finds here it puts back when the training has ended, however that was.
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._receive_outside)

    def _receive_outside(self, number: int, frame: FrameType | None) -> None:
        if self._began:
            return  # what is left is to write the record; ``run_rank`` puts the old handlers back
        signal.signal(number, self._before[number])
        signal.raise_signal(number)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._began = True
        # Not earlier: Lightning installs its own SIGTERM handler, which ends a run with status 0.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._received = number

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        if trainer.fit_loop.epoch_loop._should_accumulate():
            return
        agree = trainer.world_size == 1 or trainer.global_step % self._check_every_n_steps == 0
        if agree and trainer.global_step not in self._validation_steps:
            self._stop_if_asked(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, LanguageModelTask)
        if trainer.global_step < pl_module.num_steps:  # else the run is complete
            self._stop_if_asked(trainer)

    def _stop_if_asked(self, trainer: L.Trainer) -> None:
        received = self._received is not None
        if trainer.world_size > 1:
            received = trainer.strategy.reduce_boolean_decision(received, all=False)
        if received:
            trainer.save_checkpoint(self._checkpoint)
            raise RunInterruptedError(f"stopped by a signal after step {trainer.global_step}")


class ValidateAt(L.Callback):
    """Validates after ``num_validations`` evenly spaced optimizer steps, the last one included."""

    def __init__(self, num_steps: int, num_validations: int):
        count = min(num_validations, num_steps)
        self.steps = {round(num_steps * (i + 1) / count) for i in range(count)}

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # Lightning's own interval must divide the number of batches, or the end is never validated.
        completes_step = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        due = completes_step and (batch_idx + 1) // trainer.accumulate_grad_batches in self.steps
        trainer.val_check_batch = 1 if due else float("inf")


class TrainLog(L.Callback):
    """Logs loss, learning rate, gradient norm and throughput every ``every_n_steps`` optimizer steps."""

    def __init__(self, every_n_steps: int, throughput: ThroughputMeter):
        self._every_n_steps = every_n_steps
        self._throughput = throughput

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        assert isinstance(pl_module, LanguageModelTask)
        step = trainer.global_step
        if trainer.fit_loop.epoch_loop._should_accumulate():
            return
        if step == 1 or step % self._every_n_steps == 0 or step == pl_module.num_steps:
            self._log(trainer, pl_module)

    def _log(self, trainer: L.Trainer, task: LanguageModelTask) -> None:
        task.collect_losses()
        losses, task.unlogged_losses = task.unlogged_losses, []
        metrics: dict[str, float] = {
            "tokens": task.tokens_seen,
            "seconds": task.seconds,
            "train/loss": sum(losses) / len(losses),
        }
        if task.learning_rate is not None:
            metrics["learning_rate"] = task.learning_rate
        if isinstance(task.gradient_norm, torch.Tensor):
            metrics["gradient_norm"] = float(task.gradient_norm)
        if self._throughput.latest is not None:
            metrics["tokens_per_second"] = self._throughput.latest
        for logger in trainer.loggers:
            logger.log_metrics(metrics, step=trainer.global_step)
