"""What each diagnostic of a run costs, as a share of the run's own time, measured on this machine.

    python train.py callbacks=diagnostics budget=smoke
    python -m tielab.diagnostics.cost outputs/runs/RUN

An interrupted run will do. Its model is trained again on its data for a few steps. What a measured step takes
longer is the median over pairs of neighbouring steps, one watched and one not, the first of them in turn, so
that whatever else the machine does falls on both. What a diagnostic does at the other steps and at
validations it does in hooks of its own, and those are timed.
"""

import argparse
import copy
import logging
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import numpy as np
import torch

from tielab.build import build
from tielab.data.datamodule import TextDataModule
from tielab.data.prepare import prepare
from tielab.diagnostics.base import Diagnostic, SteppedDiagnostic, ValidationDiagnostic
from tielab.errors import RequestError
from tielab.fit import build_model
from tielab.folder import read_run_config
from tielab.record import read_record
from tielab.training.callbacks import ValidateAt
from tielab.training.task import LanguageModelTask

WARMUP_PAIRS = 5
NEVER = 10**9
"""An interval that ends after the measurement."""


class EveryOther(L.Callback):
    """Passes the hooks of every other step and of all validations on to a diagnostic, and times them."""

    def __init__(self, diagnostic: Diagnostic):
        self.diagnostic = diagnostic
        self.step_seconds: list[float] = []
        """Of whole steps, with the diagnostic's hooks."""
        self.hook_seconds: list[float] = []
        """Of the diagnostic's hooks in each step."""
        self.validation_seconds: list[float] = []
        """Of whole validations, without the diagnostic's hooks."""
        self.validation_hook_seconds: list[float] = []
        self._started = self._in_hooks = 0.0

    def watched(self, step: int) -> bool:
        """Whether the diagnostic sees a step: first of a pair, second, second, first, ..."""
        return (step % 2 == 0) == (step // 2 % 2 == 0)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.diagnostic.setup(trainer, pl_module, stage)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.diagnostic.on_train_start(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._started, self._in_hooks = _now(), 0.0
        if self.watched(batch_idx):
            self._time("on_train_batch_start", trainer, pl_module, batch, batch_idx)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if self.watched(trainer.global_step):
            self._time("on_before_optimizer_step", trainer, pl_module, optimizer)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.watched(batch_idx):
            self._time("on_train_batch_end", trainer, pl_module, outputs, batch, batch_idx)
        self.step_seconds.append(_now() - self._started)
        self.hook_seconds.append(self._in_hooks)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._started, self._in_hooks = _now(), 0.0
        self._time("on_validation_start", trainer, pl_module)

    def on_validation_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        self._time("on_validation_batch_end", trainer, pl_module, *args)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._time("on_validation_end", trainer, pl_module)
        self.validation_seconds.append(_now() - self._started - self._in_hooks)
        self.validation_hook_seconds.append(self._in_hooks)

    def _time(self, hook: str, *args: Any) -> None:
        started = _now()
        getattr(self.diagnostic, hook)(*args)
        self._in_hooks += _now() - started


def _now() -> float:
    """Seconds: on a GPU of wall time, on the CPU of processor time, in which other programs do not count."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


@dataclass(frozen=True)
class Cost:
    """What a diagnostic adds to a run."""

    name: str
    num_measurements: int
    """Pairs of steps, or validations, that were timed."""
    seconds: float
    """Median of what one measurement takes."""
    share_of_steps: float
    """What it takes in the whole run, as a share of the steps' time without it."""
    share_of_run: float
    """The same, of the time of steps and validations."""


class Bench:
    """A run's model and data, trained for a few steps with one diagnostic."""

    def __init__(self, folder: Path):
        self.config, self.record = read_run_config(folder), read_record(folder)
        if self.record.num_steps is None:
            raise RequestError(f"{folder} has not begun to train; run it until it does")
        torch.set_num_threads(self.config["trainer"]["num_threads"])
        self.prepared = prepare(self.config["data"])

    def diagnostics(self) -> list[Diagnostic]:
        """The diagnostics that the run names, as it sets them."""
        built = (build(node, L.Callback, (Path(),)) for node in self.config["callbacks"].values())
        return [callback for callback in built if isinstance(callback, Diagnostic)]

    def train(self, diagnostic: Diagnostic, num_steps: int, num_validations: int) -> EveryOther:
        """Train for a number of steps, every other one watched."""
        timed = EveryOther(diagnostic)
        data, settings = self.config["data"], self.config["trainer"]
        task = LanguageModelTask(
            build_model(self.config["model"], self.prepared.tokenizer), self.config["optimizer"],
            self.config["schedule"], num_steps=num_steps, content_hash="", num_words=0, identity={},
            tokens_per_step=data["batch_size"] * data["block_size"], seed=self.config["seed"],
        )  # fmt: skip
        trainer = L.Trainer(
            accelerator=settings["accelerator"], devices=1, precision=settings["precision"], max_epochs=1,
            deterministic=settings["deterministic"], max_steps=num_steps, num_sanity_val_steps=0,
            logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
            limit_val_batches=1.0 if num_validations else 0,
            callbacks=[ValidateAt(num_steps, max(1, num_validations)), timed],
        )  # fmt: skip
        trainer.fit(task, TextDataModule(data, self.prepared, num_steps))
        return timed

    def step_costs(self, diagnostic: SteppedDiagnostic, num_pairs: int) -> tuple[float, float]:
        """Median of what a measured step takes longer, and of what the hooks take at any other one."""
        found = []
        steps = range(2 * WARMUP_PAIRS, 2 * (WARMUP_PAIRS + num_pairs))
        for every_n_steps in (1, NEVER):
            changed = copy.copy(diagnostic)
            changed.every_n_steps = every_n_steps
            # One pair more: the last step of a training is always measured.
            found.append(self.train(changed, len(steps) + 2 * (WARMUP_PAIRS + 1), 0))
        measured, other = found
        watched, plain = (
            [measured.step_seconds[s] for s in steps if measured.watched(s) is seen] for seen in (True, False)
        )
        between = [other.hook_seconds[step] for step in steps if other.watched(step)]
        return float(np.median(np.subtract(watched, plain))), float(np.median(between))

    def cost(
        self, diagnostic: Diagnostic, times: tuple[float, float], num_pairs: int, num_validations: int
    ) -> Cost:
        """What a diagnostic costs in a run of this length.

        Args:
            times: seconds of one step and of one validation.
        """
        steps, validations = self.record.num_steps, self.config["budget"]["num_validations"]
        assert steps is not None
        total = steps * times[0] + validations * times[1]
        if isinstance(diagnostic, SteppedDiagnostic):
            measured, other = self.step_costs(diagnostic, num_pairs)
            num_measured = steps / diagnostic.every_n_steps
            spent = num_measured * measured + (steps - num_measured) * other
            return Cost(diagnostic.name, num_pairs, measured, spent / (steps * times[0]), spent / total)
        timed = self.train(diagnostic, num_validations, num_validations)
        seconds = float(np.median(timed.validation_hook_seconds))
        spent = seconds * (validations + isinstance(diagnostic, ValidationDiagnostic))  # one before the first
        return Cost(diagnostic.name, num_validations, seconds, spent / (steps * times[0]), spent / total)

    def times(self, num_pairs: int) -> tuple[float, float]:
        """Seconds of one step, and of one validation, without any diagnostic."""
        timed = self.train(Diagnostic(), 2 * (WARMUP_PAIRS + num_pairs), 1)
        steps = timed.step_seconds[2 * WARMUP_PAIRS :]
        return float(np.median(steps)), float(np.median(timed.validation_seconds))


def main() -> None:
    """Print the cost of every diagnostic of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run with callbacks=diagnostics")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of steps for each diagnostic")
    parser.add_argument("--validations", type=int, default=3, help="validations for each of the others")
    asked = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    bench = Bench(asked.run)
    step, validation = times = bench.times(asked.pairs)
    print(f"step {1e3 * step:.2f} ms, validation {1e3 * validation:.0f} ms, {bench.record.num_steps} steps")
    for diagnostic in bench.diagnostics():
        found = bench.cost(diagnostic, times, asked.pairs, asked.validations)
        shares = f"{found.share_of_steps:.2%} of the steps, {found.share_of_run:.2%} of the run"
        each = f"{found.name:20} {1e3 * found.seconds:9.2f} ms a measurement"
        print(f"{each}, {shares}, n={found.num_measurements}", flush=True)


if __name__ == "__main__":
    main()
