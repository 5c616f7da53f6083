"""What a run was computed with: package versions, the device, and how much memory it took."""

import functools
import importlib.metadata
import platform
from pathlib import Path

import lightning.pytorch as L
import torch


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a result, as they were when first asked for."""
    names = ("tielab", "torch", "lightning", "torchmetrics", "tokenizers", "numpy", "hydra-core", "wandb")
    return {"python": platform.python_version(), **{n: importlib.metadata.version(n) for n in names}}


def device_name(trainer: L.Trainer) -> str:
    """What one process trains on, as its maker calls it."""
    device = trainer.strategy.root_device
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return f"cpu: {line.partition(':')[2].strip()}"
    return f"cpu: {platform.processor() or platform.machine()}"


def peak_memory_bytes(trainer: L.Trainer) -> int | None:
    """Most memory the first process has held: of the GPU's allocator, else resident."""
    device = trainer.strategy.root_device
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Not getrusage: its peak is inherited from the process that started this one.
    for line in _lines("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
