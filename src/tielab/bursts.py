"""Train two arms in turn, in short bursts in one process, and say how long each takes per token.

In turn, since what else the machine does changes from minute to minute: it then slows both.
"""

import json
import logging
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import numpy as np

from tielab.fit import Fit
from tielab.run import first_record
from tielab.timing import REQUEST_NAME, RESULT_NAME
from tielab.training.throughput import ThroughputMeter, TrainingClock

REPEATS = 5
SECONDS_PER_BURST = 1.0
"""Measured; as much again by a third goes before."""
INTERVALS_PER_BURST = 3
MAX_STEPS = 100
"""Of an interval."""


def measure(config: dict[str, Any], reference_model: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Median and quartiles of the seconds per token of both arms, and how they were measured.

    Args:
        folder: exists for this.
    """
    fits = {
        arm: _fit({**config, "model": model}, folder)
        for arm, model in (("adjusted", config["model"]), ("reference", reference_model))
    }
    for fit in fits.values():
        burst(fit, 1)  # allocates, compiles, reads from disk
    tokens_per_step = config["data"]["batch_size"] * config["data"]["block_size"]
    seconds_per_step = max(burst(fit, 1) for fit in fits.values()) * tokens_per_step
    num_steps = math.ceil(SECONDS_PER_BURST / INTERVALS_PER_BURST / seconds_per_step)
    num_steps = min(MAX_STEPS, max(2, num_steps))
    seconds: dict[str, list[float]] = {arm: [] for arm in fits}
    for repeat in range(REPEATS):
        for arm in [*fits] if repeat % 2 == 0 else reversed([*fits]):  # else one always comes second
            seconds[arm].append(burst(fits[arm], num_steps))
    found = {arm: _quartiles(values) for arm, values in seconds.items()}
    how = {
        "num_repeats": REPEATS,
        "steps_per_repeat": num_steps * INTERVALS_PER_BURST,
        "num_threads": config["trainer"]["num_threads"],
    }
    return {**found, **how}


def _fit(config: dict[str, Any], folder: Path) -> Fit:
    """The objects of a run that is trained by nobody else and keeps nothing."""
    alone = {**config, "callbacks": {}, "logger": {}, "resume_from": None}
    return Fit(alone, folder, first_record(alone))


def burst(fit: Fit, num_steps: int) -> float:
    """Train for some intervals of so many steps after a first one that is not counted; seconds per token."""
    settings = fit.config["trainer"]
    fit.task.num_steps = fit.data.num_steps = (1 + INTERVALS_PER_BURST) * num_steps
    clock = TrainingClock(num_steps * settings["accumulate_grad_batches"])
    meter = ThroughputMeter(clock, num_steps, num_steps)
    trainer = L.Trainer(
        **{name: settings[name] for name in ("accelerator", "devices", "precision", "deterministic")},
        accumulate_grad_batches=settings["accumulate_grad_batches"],
        max_epochs=1,
        max_steps=fit.data.num_steps,
        limit_val_batches=0,
        callbacks=[meter],
        profiler=clock,
        logger=False,
        default_root_dir=fit.folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(fit.task, fit.data)
    assert len(meter.tokens_per_second) == INTERVALS_PER_BURST
    return float(np.mean([1 / rate for rate in meter.tokens_per_second]))


def _quartiles(values: list[float]) -> dict[str, float]:
    q1, median, q3 = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
    return {"median": median, "q1": q1, "q3": q3}


def main(folder: Path) -> None:
    """Answer the request in a folder."""
    request = json.loads((folder / REQUEST_NAME).read_text(encoding="utf-8"))
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    result = measure(request["config"], request["reference_model"], folder)
    (folder / RESULT_NAME).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
