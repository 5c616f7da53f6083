"""MiniGPT trained as the project trains it, without the harness: what a step costs by itself.

V vocabulary, D width, T positions, B windows.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from tielab.allocator import keep_freed_memory
from tielab.composition import composed
from tielab.models.accounting import flops_per_token
from tielab.models.minigpt import MiniGPT
from tielab.training.optim import build_optimizer, clip_gradients

PRECISIONS = ("32-true", "bf16-mixed")


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of a batch."""

    vocab_size: int
    embed_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    block_size: int
    batch_size: int

    @property
    def tokens(self) -> int:
        """Of one step."""
        return self.batch_size * self.block_size


SHAPES = {
    "small": Shape(4096, 128, 4, 4, 512, 128, 16),
    "medium": Shape(8192, 256, 6, 4, 1024, 256, 8),
    "wide": Shape(16384, 512, 6, 4, 2048, 256, 4),
}
TINY = Shape(64, 32, 2, 2, 64, 16, 2)


def settings() -> dict[str, Any]:
    """The config of the default run; this process computes as that of such a run from now on."""
    config = composed(("logger=none",), {})
    keep_freed_memory()
    torch.set_flush_denormal(True)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as the trainer does; determinism needs it on a GPU
    torch.set_num_threads(config["trainer"]["num_threads"])
    torch.use_deterministic_algorithms(config["trainer"]["deterministic"])
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return config


def autocast(precision: str, device: str = "cpu") -> contextlib.AbstractContextManager[object]:
    """What the trainer wraps a forward pass in for ``trainer.precision``."""
    if precision == "32-true":
        return contextlib.nullcontext()
    return torch.autocast(device, torch.bfloat16)


def batch(shape: Shape, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Random ids and targets (B, T), the same at every call."""
    draw = torch.Generator().manual_seed(0)
    size = (2, shape.batch_size, shape.block_size)
    input_ids, targets = torch.randint(shape.vocab_size, size, generator=draw).to(device)
    return input_ids, targets


class Training:
    """A model with its optimizer and one batch, on which every step trains.

    Args:
        optimizer: the config group of that name.
        compiled: compile the blocks, as ``compile=true`` does.
    """

    def __init__(
        self,
        shape: Shape,
        optimizer: dict[str, Any],
        *,
        precision: str = "32-true",
        tied: bool = True,
        device: str = "cpu",
        compiled: bool = False,
    ):
        self.model = MiniGPT(
            shape.vocab_size,
            shape.block_size,
            shape.embed_dim,
            shape.num_layers,
            shape.num_heads,
            shape.hidden_dim,
            tied=tied,
        ).to(device)
        if compiled:
            self.model.compile_blocks()
        self.optimizer = build_optimizer(self.model, optimizer)
        self.parameters = list(self.model.parameters())
        self.clip_norm: float = optimizer["gradient_clip_norm"]
        self.precision, self.device = precision, device
        self.batch = batch(shape, device)
        self.flops = flops_per_token(self.model)["train"] * shape.tokens
        """Of one step."""

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters)

    def compute_gradients(self) -> None:
        """Forward and backward pass."""
        with autocast(self.precision, self.device):
            loss = self.model.loss(*self.batch)
        loss.backward()  # type: ignore[no-untyped-call]

    def update(self) -> None:
        """Clip the gradients, step, and drop them."""
        clip_gradients(self.parameters, self.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step(self) -> None:
        self.compute_gradients()
        self.update()


def synchronize(device: str) -> None:
    """Wait until a device has done what it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak_bytes(function: Callable[[], object], device: str = "cpu") -> int:
    """Most bytes that torch held at once on a device in a call, beyond those it held before.

    On the CPU counted from every allocation and release of torch's allocator, inside of operators too.
    """
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        function()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        kept = function()
    del kept
    assert found.profiler is not None
    events = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most
