"""The trainer's strategy, and which share of the data each of its processes reads."""

from typing import Any

import lightning.pytorch as L
from lightning.pytorch.strategies import ModelParallelStrategy


def build_strategy(settings: dict[str, Any]) -> str | ModelParallelStrategy:
    """What the trainer is given for ``trainer.strategy``; checkpoints of ``fsdp`` are one ordinary file.

    Args:
        settings: the config group ``trainer``.
    """
    if settings["strategy"] != "fsdp":
        return str(settings["strategy"])
    tensor_parallel_size = settings["tensor_parallel_size"]
    return ModelParallelStrategy(
        data_parallel_size=settings["devices"] * settings["num_nodes"] // tensor_parallel_size,
        tensor_parallel_size=tensor_parallel_size,
        save_distributed_checkpoint=False,
    )


def batch_share(trainer: L.Trainer) -> tuple[int, int]:
    """Which share of every batch this process reads, and of how many: (rank, number of shares)."""
    shares = getattr(trainer.strategy, "distributed_sampler_kwargs", None)  # one device has none
    return (shares["rank"], shares["num_replicas"]) if shares else (0, 1)
