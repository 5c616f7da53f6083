"""What the harness costs: a step of ``train.py`` against the same step of a plain PyTorch loop.

Both train the same MiniGPT on the same batches with the same optimizer, clipping and schedule in one process;
after every few steps of the harness the plain loop does the same. Validation and checkpoints are left out.
"""

import logging
import os
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from rich.console import Console
from rich.table import Table
from torch.nn.utils import clip_grad_norm_

from benchmarks import measure
from benchmarks.arms import SHAPES, tielab_overrides
from tielab.composition import composed
from tielab.data.datamodule import TrainingBatches
from tielab.fit import Fit
from tielab.run import first_record
from tielab.tracking.wandb import finish_wandb
from tielab.training.optim import build_optimizer, build_schedule

LOG_EVERY_N_STEPS = 10
"""The default of ``train.py``."""
HOOKS = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward",
    "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip
"""What Lightning calls of a callback at every step."""
CLIPPING, LOGGERS = "gradient clipping", "loggers"


@dataclass(frozen=True)
class Plan:
    """How many steps are done: warm-up, then slices of so many by both."""

    warmup_steps: int
    slice_steps: int
    num_slices: int

    @property
    def num_steps(self) -> int:
        return self.warmup_steps + self.slice_steps * self.num_slices


PLANS = {"tiny": Plan(200, 200, 10), "small": Plan(4, 4, 12), "wide": Plan(2, 2, 8)}
QUICK = Plan(4, 10, 2)


class PlainLoop:
    """The loop that a user would write around a run's model, batches and optimizer."""

    def __init__(self, fit: Fit):
        config = fit.config
        self.model = fit.model
        self.clipping_seconds = 0.0
        self._limit = config["optimizer"]["gradient_clip_norm"]
        self._optimizer = build_optimizer(self.model, config["optimizer"])
        # In the optimizer's order, as the harness has them: a sum in another one differs in its last bits.
        self._parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        self._schedule = build_schedule(self._optimizer, fit.num_steps, config["schedule"])
        self._batches = TrainingBatches(
            fit.data.train_split,
            fit.data.order,
            block_size=config["data"]["block_size"],
            stride=config["data"]["stride"],
            num_micro_batches=1,
            rank=0,
            world_size=1,
        )

    def train(self, first: int, end: int) -> None:
        """Do the steps from first up to end."""
        for step in range(first, end):
            input_ids, targets = self._batches[step]
            loss = self.model.loss(input_ids, targets)
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            started = time.perf_counter()
            clip_grad_norm_(self._parameters, self._limit)
            self.clipping_seconds += time.perf_counter() - started
            self._optimizer.step()
            self._schedule.step()


class Slices(L.Callback):
    """After every slice of the harness has the plain loop do the same steps, and times both.

    Args:
        on_start: called when the warm-up of both is over.
    """

    def __init__(self, plan: Plan, loop: PlainLoop, on_start: Callable[[], None]):
        self.harness_seconds: list[float] = []
        """Of a step, in each slice."""
        self.plain_seconds: list[float] = []
        self._plan, self._loop, self._on_start = plan, loop, on_start
        self._resumed = 0.0

    def on_train_batch_start(self, trainer: L.Trainer, task: Any, batch: Any, batch_idx: int) -> None:
        steps = batch_idx - self._plan.warmup_steps
        if steps == 0:
            self._loop.train(0, batch_idx)
            self._on_start()
            self._resumed = time.perf_counter()
        elif steps > 0 and steps % self._plan.slice_steps == 0:
            self._turn(batch_idx)

    def on_train_end(self, trainer: L.Trainer, task: Any) -> None:
        self._turn(self._plan.num_steps)

    def _turn(self, end: int) -> None:
        size = self._plan.slice_steps
        stopped = time.perf_counter()
        self._loop.train(end - size, end)
        resumed = time.perf_counter()
        self.harness_seconds.append((stopped - self._resumed) / size)
        self.plain_seconds.append((resumed - stopped) / size)
        self._resumed = resumed


@dataclass
class Hooks:
    """Seconds spent in methods, by a name given to each."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Replace a method of one object by itself with a clock."""
        original = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds[name] += time.perf_counter() - started

        setattr(owner, method, timed)

    def watch_trainer(self, trainer: L.Trainer, fit: Fit) -> None:
        """Every hook of a step that a callback has, the task's own, clipping and the loggers."""
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            for hook in HOOKS:
                if getattr(type(callback), hook) is not getattr(L.Callback, hook):
                    self.watch(callback, hook, f"{type(callback).__name__}.{hook}")
        self.watch(fit.task, "on_train_batch_start", "LanguageModelTask.on_train_batch_start")
        self.watch(fit.task, "configure_gradient_clipping", CLIPPING)
        for logger in trainer.loggers:
            self.watch(logger, "log_metrics", LOGGERS)


@dataclass(frozen=True)
class Measured:
    """Seconds of a step by slice; of a hook, per step."""

    harness: list[float]
    plain: list[float]
    hooks: dict[str, float]
    plain_clipping: float
    same_weights: bool
    """Whether both loops ended with the same weights, bit for bit: they did the same."""


def measured(name: str, plan: Plan, extra: Sequence[str], *, by_hook: bool) -> Measured:
    """Train a shape in the harness and in a plain loop, slice by slice."""
    shape = SHAPES[name]
    with tempfile.TemporaryDirectory() as folder:
        overrides = [
            *tielab_overrides(shape),
            f"trainer.log_every_n_steps={LOG_EVERY_N_STEPS}",
            f"budget.tokens={plan.num_steps * shape.tokens_per_step}",
            f"output_dir={folder}",
            *extra,
        ]
        config = composed(overrides, {})
        fit, plain = (Fit(config, Path(folder), first_record(config)) for _ in range(2))
        loop, hooks = PlainLoop(plain), Hooks()

        def reset() -> None:
            hooks.seconds.clear()
            loop.clipping_seconds = 0.0

        slices = Slices(plan, loop, reset)
        trainer = fit._build_trainer()
        trainer.limit_val_batches = 0
        if by_hook:
            hooks.watch_trainer(trainer, fit)
        trainer.callbacks.append(slices)  # type: ignore[attr-defined]
        trainer.fit(fit.task, fit.data)
        finish_wandb(fit.wandb_logger, 0)
    num_steps = plan.num_steps - plan.warmup_steps
    pairs = zip(fit.model.parameters(), loop.model.parameters(), strict=True)
    return Measured(
        slices.harness_seconds,
        slices.plain_seconds,
        {hook: seconds / num_steps for hook, seconds in hooks.seconds.items()},
        loop.clipping_seconds / num_steps,
        all(torch.equal(one, other) for one, other in pairs),
    )


def step_row(name: str, found: Measured) -> dict[str, Any]:
    """What a step costs in both, and what the harness adds."""
    added = [one - other for one, other in zip(found.harness, found.plain, strict=True)]
    return {
        "shape": name,
        "harness_seconds_per_step": measure.quartiles(found.harness),
        "plain_seconds_per_step": measure.quartiles(found.plain),
        "harness_over_plain": measure.ratios(found.harness, found.plain),
        "added_microseconds_per_step": measure.quartiles([1e6 * seconds for seconds in added]),
        "same_weights": found.same_weights,
    }


def part_rows(name: str, found: Measured) -> list[dict[str, Any]]:
    """Where that goes: by hook, clipping beyond torch's own, and the rest, which is Lightning's."""
    parts = dict(found.hooks)
    within_log = parts.pop(LOGGERS, 0.0)
    parts[CLIPPING] = parts.get(CLIPPING, 0.0) - found.plain_clipping
    added = step_row(name, found)["added_microseconds_per_step"]["median"]
    parts["Lightning's loop"] = added / 1e6 - sum(parts.values())
    parts["loggers, within TrainLog"] = within_log
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    return [
        {"shape": name, "part": part, "microseconds_per_step": 1e6 * seconds} for part, seconds in ordered
    ]


def render(steps: Sequence[dict[str, Any]], parts: Sequence[dict[str, Any]]) -> list[Table]:
    whole = Table("shape", "plain ms", "harness ms", "ratio", "added µs", title="a training step")
    for row in steps:
        plain, harness, ratio, added = (
            row[key]
            for key in (
                "plain_seconds_per_step",
                "harness_seconds_per_step",
                "harness_over_plain",
                "added_microseconds_per_step",
            )
        )
        whole.add_row(
            row["shape"],
            f"{1e3 * plain['median']:.2f}",
            f"{1e3 * harness['median']:.2f}",
            f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})",
            f"{added['median']:.0f}",
        )
    table = Table("shape", "part", "µs per step", title="what is added")
    for row in parts:
        table.add_row(row["shape"], row["part"], f"{row['microseconds_per_step']:.0f}")
    return [whole, table]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = measure.command_line(__doc__, quick="the tiny shape, few steps, no W&B")
    asked = parser.parse_args(arguments)
    os.environ.setdefault("WANDB_MODE", "offline")
    warnings.filterwarnings("ignore")
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    plans = {"tiny": QUICK} if asked.quick else PLANS
    extra = ["logger=none", "trainer.num_threads=1"] if asked.quick else []
    with measure.watched() as seen:
        steps = [step_row(name, measured(name, plan, extra, by_hook=False)) for name, plan in plans.items()]
        parts = part_rows("tiny", measured("tiny", plans["tiny"], extra, by_hook=True))
    Console().print(*render(steps, parts))
    conditions = {
        "threads": torch.get_num_threads(),
        "log_every_n_steps": LOG_EVERY_N_STEPS,
        "plans": {name: vars(plan) for name, plan in plans.items()},
        "shapes": {name: vars(SHAPES[name]) for name in plans},
    }
    print(measure.write("overhead", [*steps, *parts], seen, conditions, asked.out))


if __name__ == "__main__":
    main()
