"""What a training step costs as vocabulary, width and context grow, tied and untied, beside a model of it.

``python -m benchmarks.growth [--quick] [--out FOLDER]``; draws ``growth.png`` and ``growth.svg`` too.

The model has two constants, both measured in the same run: seconds = FLOPs / R + parameters * 40 bytes / M.
R is the operations per second of forward and backward pass, M the bytes per second of clipping and AdamW.
Clipping moves 12 bytes of a parameter (read for the norm, read and written for the scaling), AdamW 28
(weight, gradient and two moments read, all but the gradient written). Tying takes V D parameters from the
second term and nothing from the first. Memory has no constant that is fitted: see ``predicted_bytes``.
"""

import time
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

from benchmarks import measure
from benchmarks.steps import TINY, Shape, Training, peak_bytes, settings
from tielab.models.head import CHUNK_LOGITS

BASE = Shape(4096, 256, 2, 4, 1024, 256, 4)
VOCAB_SIZES = (256, 1024, 4096, 16384, 50257)
WIDTHS = (64, 128, 256, 512, 1024)
BLOCK_SIZES = (64, 128, 256, 512, 1024)
BYTES_PER_UPDATE = 40
"""Read and written for a float32 parameter by clipping and AdamW."""
BYTES_PER_PARAMETER = 16
"""Weight, gradient and two moments."""
ACTIVATIONS_PER_WIDTH = 16
"""Numbers that a block keeps of each position for the backward pass, over D; the MLP is 4 D wide."""
ROUNDS, QUICK_ROUNDS = 7, 2
SECONDS_PER_TURN = 0.3
ARMS = {"tied": True, "untied": False}
NAMES = {"vocab_size": "vocabulary V", "embed_dim": "width D", "block_size": "context T"}
COLORS = {"tied": "tab:blue", "untied": "tab:orange"}


def shapes(quick: bool) -> dict[str, list[Shape]]:
    """By the size that grows; each step has as many tokens."""
    if quick:
        return {
            "vocab_size": [TINY, replace(TINY, vocab_size=128)],
            "embed_dim": [TINY, replace(TINY, embed_dim=64, hidden_dim=256)],
            "block_size": [TINY, replace(TINY, block_size=32, batch_size=1)],
        }
    tokens = BASE.tokens
    return {
        "vocab_size": [replace(BASE, vocab_size=size) for size in VOCAB_SIZES],
        "embed_dim": [replace(BASE, embed_dim=size, hidden_dim=4 * size) for size in WIDTHS],
        "block_size": [replace(BASE, block_size=size, batch_size=tokens // size) for size in BLOCK_SIZES],
    }


def predicted_bytes(shape: Shape, num_parameters: int) -> int:
    """Most bytes that a step holds: at the head, or when all gradients are there.

    At the head there are weights and moments, what the blocks keep, and of one chunk of logits either logits
    and log-probabilities, or their gradient and that of the head's matrix; from the second chunk on that
    matrix as well. At the end: weights, moments and gradients.
    """
    kept = ACTIVATIONS_PER_WIDTH * shape.num_layers * shape.embed_dim * shape.tokens
    positions = min(shape.tokens, max(1, CHUNK_LOGITS // shape.vocab_size))
    chunk, matrix = positions * shape.vocab_size, shape.vocab_size * shape.embed_dim
    scored = chunk + max(chunk, matrix) if positions == shape.tokens else 2 * chunk + matrix
    at_head = 3 * num_parameters + kept + scored
    return max(4 * at_head, BYTES_PER_PARAMETER * num_parameters)


@dataclass
class Case:
    """One arm of one shape, kept from round to round; each list holds a median per turn, in seconds."""

    shape: Shape
    arm: str
    training: Training
    peak_bytes: int
    steps: list[float] = field(default_factory=list)
    gradients: list[float] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)

    def turn(self, seconds: float) -> None:
        """Train for about so long, and at least a step."""
        parts: list[tuple[float, float]] = []
        ends = time.monotonic() + seconds
        while not parts or time.monotonic() < ends:
            gradients = measure.seconds(self.training.compute_gradients)
            parts.append((gradients, measure.seconds(self.training.update)))
        self.steps.append(median(map(sum, parts)))
        self.gradients.append(median(gradients for gradients, _ in parts))
        self.updates.append(median(update for _, update in parts))


def cases(shape: Shape, optimizer: dict[str, Any]) -> list[Case]:
    """Both arms of a shape, after two steps, in which the memory is counted."""
    found = []
    for arm, tied in ARMS.items():
        begun: list[Training] = []

        def begin(begun: list[Training] = begun, tied: bool = tied) -> None:
            begun.append(Training(shape, optimizer, tied=tied))
            begun[0].step()
            begun[0].step()

        peak = peak_bytes(begin)
        found.append(Case(shape, arm, begun[0], peak))
    return found


def table_rows(both: list[Case]) -> list[dict[str, Any]]:
    """A row for each arm of a shape, the tied one first."""
    tied = both[0]
    return [
        {
            **vars(case.shape),
            "arm": case.arm,
            "parameters": case.training.num_parameters,
            "flops_per_step": case.training.flops,
            "seconds_per_step": measure.quartiles(case.steps),
            "seconds_per_gradients": measure.quartiles(case.gradients),
            "seconds_per_update": measure.quartiles(case.updates),
            "seconds_to_tied": measure.ratios(case.steps, tied.steps),
            "tokens_per_second": measure.quartiles([case.shape.tokens / seconds for seconds in case.steps]),
            "state_bytes": BYTES_PER_PARAMETER * case.training.num_parameters,
            "peak_memory_bytes": case.peak_bytes,
        }
        for case in both
    ]


def measured(optimizer: dict[str, Any], quick: bool) -> list[dict[str, Any]]:
    """All rows. Every round goes over all shapes, or a drift of the machine would look like growth."""
    grown = shapes(quick)
    by_shape = {shape: cases(shape, optimizer) for shape in dict.fromkeys(chain(*grown.values()))}
    every = [*chain(*by_shape.values())]
    for number in range(QUICK_ROUNDS if quick else ROUNDS):
        for case in every[:: -1 if number % 2 else 1]:
            case.turn(0.0 if quick else SECONDS_PER_TURN)
    return [
        {"grows": grows, **row}
        for grows, some in grown.items()
        for shape in some
        for row in table_rows(by_shape[shape])
    ]


def constants(rows: list[dict[str, Any]]) -> dict[str, float]:
    """R and M: medians over all rows of what was measured of each part of a step by itself."""
    rate = [row["flops_per_step"] / row["seconds_per_gradients"]["median"] for row in rows]
    memory = [BYTES_PER_UPDATE * row["parameters"] / row["seconds_per_update"]["median"] for row in rows]
    return {"flops_per_second": median(rate), "update_bytes_per_second": median(memory)}


def predict(rows: list[dict[str, Any]], found: dict[str, float]) -> None:
    """Add what the model says to every row, and by how much the measurement is above it."""
    for row in rows:
        seconds = (
            row["flops_per_step"] / found["flops_per_second"]
            + BYTES_PER_UPDATE * row["parameters"] / found["update_bytes_per_second"]
        )
        shape = Shape(**{name: row[name] for name in vars(BASE)})
        row["predicted_seconds_per_step"] = seconds
        row["seconds_residual"] = row["seconds_per_step"]["median"] / seconds - 1
        row["predicted_peak_bytes"] = predicted_bytes(shape, row["parameters"])
        row["memory_residual"] = row["peak_memory_bytes"] / row["predicted_peak_bytes"] - 1


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    """Tokens per second and memory over each size: measured as points, the model as lines."""
    grown = list(dict.fromkeys(row["grows"] for row in rows))
    figure, axes = plt.subplots(2, len(grown), figsize=(11, 6), sharex="col", squeeze=False)
    for column, key in enumerate(grown):
        for arm, color in COLORS.items():
            mine = [row for row in rows if row["grows"] == key and row["arm"] == arm]
            sizes = [row[key] for row in mine]
            rate, memory = axes[0, column], axes[1, column]
            points = [row["tokens_per_second"] for row in mine]
            middle = [point["median"] for point in points]
            below = [point["median"] - point["low"] for point in points]
            above = [point["high"] - point["median"] for point in points]
            rate.errorbar(sizes, middle, (below, above), fmt="o", color=color, label=f"{arm}, measured")
            tokens = mine[0]["batch_size"] * mine[0]["block_size"]
            model = [tokens / row["predicted_seconds_per_step"] for row in mine]
            rate.plot(sizes, model, color=color, label=f"{arm}, model")
            memory.plot(sizes, [row["peak_memory_bytes"] / 2**20 for row in mine], "o", color=color)
            memory.plot(sizes, [row["predicted_peak_bytes"] / 2**20 for row in mine], color=color)
        for axis in axes[:, column]:
            if key == "block_size":  # changes little: on a logarithmic axis noise would fill it
                axis.set_ylim(0, 1.1 * axis.dataLim.y1)
            axis.set(xscale="log", yscale="linear" if key == "block_size" else "log")
            axis.grid(alpha=0.3, which="both")
        axes[1, column].set_xlabel(NAMES[key])
        _mark_sizes(axes[1, column], sizes)
    axes[0, 0].set_ylabel("tokens/s")
    axes[1, 0].set_ylabel("peak memory of the training (MiB)")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    out.mkdir(parents=True, exist_ok=True)
    for kind in ("png", "svg"):
        figure.savefig(out / f"growth.{kind}", dpi=150)
    plt.close(figure)


def _mark_sizes(axis: Axes, sizes: list[int]) -> None:
    axis.set_xticks(sizes, [str(size) for size in sizes], fontsize=8)
    axis.minorticks_off()


def show(rows: list[dict[str, Any]]) -> Table:
    table = Table("V", "D", "T", "arm", "tokens/s", "model", "update ms", "to tied", "MiB", "model")
    for row in rows:
        table.add_row(
            *(str(row[key]) for key in ("vocab_size", "embed_dim", "block_size", "arm")),
            f"{row['tokens_per_second']['median']:.0f}",
            f"{row['seconds_residual']:+.0%}",
            f"{row['seconds_per_update']['median'] * 1e3:.3g}",
            f"{row['seconds_to_tied']['median']:.2f}",
            f"{row['peak_memory_bytes'] / 2**20:.0f}",
            f"{row['memory_residual']:+.0%}",
        )
    return table


def main() -> None:
    parser = measure.command_line(__doc__, quick="tiny shapes, two rounds")
    given = parser.parse_args()
    optimizer = settings()["optimizer"]
    with measure.watched() as seen:
        rows = measured(optimizer, given.quick)
    found = constants(rows)
    predict(rows, found)
    Console(width=110).print(show(rows))
    residuals = {
        kind: {"median": median(sizes), "largest": max(sizes)}
        for kind in ("seconds_residual", "memory_residual")
        for sizes in [[abs(row[kind]) for row in rows]]
    }
    print({**found, **residuals})
    conditions = {
        "threads": torch.get_num_threads(),
        "model": "MiniGPT, float32, AdamW fused, clipped, deterministic; not compiled",
        "memory": "most bytes of torch's allocator at once, model and optimizer included",
        **found,
        "residuals": residuals,
    }
    measure.write("growth", rows, seen, conditions, given.out)
    draw(rows, given.out)


if __name__ == "__main__":
    main()
