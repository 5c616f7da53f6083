"""A training step's operations per second against those of the best matrix product in the same run.

``python -m benchmarks.roofline [--quick] [--out FOLDER]``. Operations of a step are those of
``flops_per_token``, with nothing counted twice or for what is computed anew; several square and model-shaped
products are measured in turn with the steps, and the best one is the limit.
"""

from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import measure
from benchmarks.steps import PRECISIONS, SHAPES, TINY, Shape, Training, settings

SECONDS_PER_CASE = 5.0
MIN_ROUNDS, MAX_ROUNDS = 3, 15
FLOPS_PER_TURN = 2 * 1024**3
"""Of one turn of a product: milliseconds, so that what a call costs does not show."""


def products(shape: Shape) -> dict[str, tuple[int, int, int]]:
    """Sizes (M, K, N) of products (M, K) x (K, N): square ones, and those of a block and of the head."""
    tokens, D = shape.tokens, shape.embed_dim
    square = {f"{n} square": (n, n, n) for n in (512, 1024, 2048)} if shape != TINY else {}
    return {
        **square,
        "tokens x D x hidden": (tokens, D, shape.hidden_dim),
        "tokens x hidden x D": (tokens, shape.hidden_dim, D),
        "tokens x D x V": (tokens, D, shape.vocab_size),
    }


def product(size: tuple[int, int, int], dtype: torch.dtype, least_flops: float) -> Callable[[], float]:
    """A turn that multiplies two matrices over and over and returns operations per second."""
    M, K, N = size
    left, right = torch.randn(M, K).to(dtype), torch.randn(K, N).to(dtype)
    out = torch.empty(M, N, dtype=dtype)
    repeats = max(1, round(least_flops / (2 * M * K * N)))

    def turn() -> float:
        def repeat() -> None:
            for _ in range(repeats):
                torch.mm(left, right, out=out)

        return repeats * 2 * M * K * N / measure.seconds(repeat)

    return turn


def case(name: str, shape: Shape, precision: str, optimizer: dict[str, Any], quick: bool) -> dict[str, Any]:
    """The row of one shape and precision."""
    training = Training(shape, optimizer, precision=precision)
    dtype = torch.float32 if precision == "32-true" else torch.bfloat16
    least = 0.0 if quick else FLOPS_PER_TURN
    limits = {label: product(size, dtype, least) for label, size in products(shape).items()}
    arms = {"step": lambda: training.flops / measure.seconds(training.step), **limits}
    for _ in range(2):
        warm = {label: measure.seconds(arm) for label, arm in arms.items()}
    rounds = 2 if quick else max(MIN_ROUNDS, min(MAX_ROUNDS, int(SECONDS_PER_CASE / sum(warm.values()))))
    found = measure.interleave(arms, rounds)
    steps = found.pop("step")
    best = max(found, key=lambda label: measure.quartiles(found[label])["median"])
    return {
        "shape": name,
        "precision": precision,
        "flops_per_step": training.flops,
        "step_flops_per_second": measure.quartiles(steps),
        "tokens_per_second": measure.quartiles([rate * shape.tokens / training.flops for rate in steps]),
        "best_product": best,
        "product_flops_per_second": measure.quartiles(found[best]),
        "share_of_limit": measure.ratios(steps, found[best]),
        "all_products_flops_per_second": {
            label: measure.quartiles(rates)["median"] for label, rates in found.items()
        },
    }


def show(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "shape", "precision", "step GFLOP/s", "product GFLOP/s", "share", "best product", "tokens/s"
    )
    for row in rows:
        step, limit, share = (
            row[key] for key in ("step_flops_per_second", "product_flops_per_second", "share_of_limit")
        )
        table.add_row(
            row["shape"],
            row["precision"],
            f"{step['median'] / 1e9:.3g}",
            f"{limit['median'] / 1e9:.3g}",
            f"{share['median']:.0%} [{share['low']:.0%}, {share['high']:.0%}]",
            row["best_product"],
            f"{row['tokens_per_second']['median']:.0f}",
        )
    return table


def main() -> None:
    parser = measure.command_line(__doc__, quick="tiny shapes, two rounds")
    given = parser.parse_args()
    config = settings()
    shapes = {"tiny": TINY} if given.quick else SHAPES
    with measure.watched() as seen:
        rows = [
            case(name, shape, precision, config["optimizer"], given.quick)
            for name, shape in shapes.items()
            for precision in PRECISIONS
        ]
    Console(width=110).print(show(rows))
    conditions = {
        "threads": torch.get_num_threads(),
        "shapes": {name: vars(shape) for name, shape in shapes.items()},
        "model": "MiniGPT, tied, one batch, AdamW fused, clipped, deterministic; not compiled",
    }
    measure.write("roofline", rows, seen, conditions, given.out)


if __name__ == "__main__":
    main()
