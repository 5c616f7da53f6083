"""Runs whose own processes misbehave on purpose, and say which batches they saw.

``misbehave`` stands in for what a process of a run does first; the parent is the real one.
"""

import hashlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from tielab.fork_server import run_forked

FAULTS = "TIELAB_TEST_FAULTS"
"""Environment variable: {seed: fault} as JSON."""
STEP = 3
"""The optimizer step at which a fault happens, if the fault names no other."""


def misbehave(folder: Path, environment: dict[str, str], current: Path) -> None:
    """Run a rank with ``Observer`` in the place of the harness's training log."""
    import tielab.fit

    tielab.fit.TrainLog = _observer()
    run_forked(folder, environment, current)


def _observer():
    from tielab.training.callbacks import TrainLog

    class Observer(TrainLog):
        """Writes a line per batch to seen.jsonl and commits the fault of its seed."""

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            self.ids = hashlib.sha256(batch[0].numpy().tobytes()).hexdigest()

        def on_train_batch_end(self, trainer, pl_module, outputs, *args):
            super().on_train_batch_end(trainer, pl_module, outputs, *args)
            line = {"step": trainer.global_step, "ids": self.ids, "loss": float(outputs["loss"])}
            with Path(trainer.default_root_dir, "seen.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            faults = json.loads(os.environ.get(FAULTS, "{}"))
            fault, _, step = faults.get(str(pl_module.seed), "").partition("@")
            if fault and trainer.global_step == int(step or STEP):
                commit(fault, pl_module)

    return Observer


def commit(fault, task):
    """Do what the fault says, in the process of a run."""
    if fault == "raise":
        raise ValueError("broken on purpose")
    if fault == "exit":
        sys.exit(3)
    if fault == "exit as if all were well":
        sys.exit(0)
    if fault == "vanish":
        os._exit(0)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "out of memory":
        import torch

        resource.setrlimit(resource.RLIMIT_AS, (2**34, 2**34))
        torch.empty(2**36, dtype=torch.uint8)
    if fault == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
    if fault == "wait":
        time.sleep(60)
    if fault == "hold":
        Path("held").touch()
        while not Path("released").exists():
            time.sleep(0.02)


def seen(folder):
    """What the processes of a run saw: step -> (batch ids, loss); of a repeated step the last."""
    lines = map(json.loads, (folder / "seen.jsonl").read_text().splitlines())
    return {line["step"]: (line["ids"], line["loss"]) for line in lines}
