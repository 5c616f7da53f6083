"""What the peers' scripts share; they run under the peers' own Python, without tielab."""

import argparse
import time

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

ENDLESS = 1_000_000
"""Steps: the benchmark ends the process."""


def arguments() -> argparse.Namespace:
    """The shape and the tokens (uint16), as ``benchmarks.arms`` gives them."""
    parser = argparse.ArgumentParser()
    for name in ("vocab-size", "embed-dim", "num-layers", "num-heads", "block-size", "batch-size"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


def stamp(step: int) -> None:
    """Say that a step has ended, and when; one write call is one line."""
    print(f"step {step} {time.perf_counter():.6f}\n", end="", flush=True)


class Windows(Dataset[Tensor]):
    """Windows of length + 1 ids that follow each other without overlap, over and over."""

    def __init__(self, tokens: str, length: int):
        self.tokens = np.memmap(tokens, dtype=np.uint16, mode="r")
        self.length = length
        self.num_windows = (len(self.tokens) - 1) // length

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, index: int) -> Tensor:
        start = index % self.num_windows * self.length
        return torch.from_numpy(self.tokens[start : start + self.length + 1].astype(np.int64))
