"""The LM head and its loss, forward and backward: all logits at once, torch's chunks, and ours.

``python -m benchmarks.head [--quick] [--out FOLDER]``. N positions, V vocabulary, D width. Times are taken in
turn; memory is the most that torch held at once beyond hidden states and weight, gradients included; and the
gradients are compared with those of the logits path in float32.
"""

import functools
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks import measure
from benchmarks.steps import PRECISIONS, autocast, peak_bytes, settings, synchronize
from tielab.models.head import cross_entropy

SIZES = ((2048, 4096, 128), (2048, 8192, 256), (1024, 16384, 512), (4096, 50257, 256))
"""N, V, D."""
SECONDS_PER_CASE = 3.0
MIN_ROUNDS, MAX_ROUNDS = 2, 15
Head = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Hidden states (N, D), weight (V, D), targets (N,) to their mean loss."""


def logits_path(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """All logits, then the cross entropy in float32."""
    return F.cross_entropy(F.linear(hidden, weight).float(), targets)


def torch_chunked(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Torch's own chunks, of its choice; autocast does not reach it, so its inputs are cast here."""
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
    loss: Tensor = F.linear_cross_entropy(
        hidden, weight, targets, options=torch.nn.LinearCrossEntropyOptions()
    )
    return loss


def ours(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(hidden, weight, None, targets)


def heads() -> dict[str, Head]:
    """Those that this torch has."""
    found: dict[str, Head] = {"logits": logits_path, "ours": ours}
    if hasattr(F, "linear_cross_entropy"):
        found["torch chunked"] = torch_chunked
    return found


def heads_for_gpus() -> dict[str, Head]:
    """Those that need a GPU: the logits path compiled, and Liger's kernel where the package is."""
    found: dict[str, Head] = {"logits compiled": torch.compile(logits_path)}
    if importlib.util.find_spec("liger_kernel") is not None:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        fused = LigerFusedLinearCrossEntropyLoss()
        found["liger"] = lambda hidden, weight, targets: fused(weight, hidden, targets)
    return found


class Case:
    """Hidden states, weight and targets, to be scored in one precision."""

    def __init__(self, size: tuple[int, int, int], precision: str, device: str = "cpu"):
        N, V, D = size
        draw = torch.Generator().manual_seed(0)
        self.hidden = torch.randn(N, D, generator=draw).to(device).requires_grad_()
        self.weight = (0.02 * torch.randn(V, D, generator=draw)).to(device).requires_grad_()
        self.targets = torch.randint(V, (N,), generator=draw).to(device)
        self.precision, self.device = precision, device

    def run(self, head: Head) -> None:
        """Forward and backward."""
        self.hidden.grad = self.weight.grad = None
        with autocast(self.precision, self.device):
            loss = head(self.hidden, self.weight, self.targets)
        loss.backward()  # type: ignore[no-untyped-call]
        synchronize(self.device)

    def gradients(self) -> list[Tensor]:
        """Of the last run."""
        return [tensor.grad for tensor in (self.hidden, self.weight) if tensor.grad is not None]


def largest_difference(found: list[Tensor], wanted: list[Tensor]) -> float:
    """Of gradients, relative to the largest entry of the one that is wanted."""
    return max(
        float(torch.dist(one, other, torch.inf) / other.abs().max())
        for one, other in zip(found, wanted, strict=True)
    )


def rows_of(
    size: tuple[int, int, int], precision: str, quick: bool, all_heads: dict[str, Head], device: str = "cpu"
) -> list[dict[str, Any]]:
    """A row for each head."""
    reference = Case(size, "32-true", device)
    reference.run(logits_path)
    case = Case(size, precision, device)
    arms = {
        name: functools.partial(measure.seconds, functools.partial(case.run, all_heads[name]))
        for name in all_heads
    }
    differences, peaks, round_seconds = {}, {}, 0.0
    for name, head in all_heads.items():
        if device == "cuda":
            case.run(head)  # may compile
        case.hidden.grad = case.weight.grad = None
        started = time.perf_counter()
        peaks[name] = peak_bytes(functools.partial(case.run, head), device)
        round_seconds += time.perf_counter() - started
        differences[name] = largest_difference(case.gradients(), reference.gradients())
    rounds = 2 if quick else max(MIN_ROUNDS, min(MAX_ROUNDS, int(SECONDS_PER_CASE / round_seconds)))
    times = measure.interleave(arms, rounds)
    N, V, D = size
    return [
        {
            "positions": N,
            "vocab_size": V,
            "embed_dim": D,
            "precision": precision,
            "head": name,
            "seconds": measure.quartiles(times[name]),
            "seconds_to_logits": measure.ratios(times[name], times["logits"]),
            "peak_memory_bytes": peaks[name],
            "peak_memory_to_logits": peaks[name] / peaks["logits"],
            "largest_gradient_difference": differences[name],
        }
        for name in all_heads
    ]


def show(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "N", "V", "D", "precision", "head", "ms", "to logits", "peak MiB", "to logits", "difference"
    )
    for row in rows:
        ratio = row["seconds_to_logits"]
        table.add_row(
            *(str(row[key]) for key in ("positions", "vocab_size", "embed_dim", "precision", "head")),
            f"{row['seconds']['median'] * 1e3:.3g}",
            f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]",
            f"{row['peak_memory_bytes'] / 2**20:.0f}",
            f"{row['peak_memory_to_logits']:.2f}",
            f"{row['largest_gradient_difference']:.1e}",
        )
    return table


def main() -> None:
    parser = measure.command_line(__doc__, quick="one tiny size, two rounds")
    given = parser.parse_args()
    settings()
    with measure.watched() as seen:
        rows = [
            row
            for size in (((64, 512, 16),) if given.quick else SIZES)
            for precision in PRECISIONS
            for row in rows_of(size, precision, given.quick, heads())
        ]
    Console(width=110).print(show(rows))
    conditions = {
        "threads": torch.get_num_threads(),
        "memory": "most bytes of torch's allocator at once, beyond hidden states and weight",
        "difference": "largest, over the largest entry of the logits path's gradient in float32",
    }
    measure.write("head", rows, seen, conditions, given.out)


if __name__ == "__main__":
    main()
