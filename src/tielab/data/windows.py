"""Which tokens go into which batch: windows of a token stream and their order.

B batch, T positions (``block_size``), n tokens of a split. Window w of a stream starts at token
w * stride, its inputs are T tokens from there and its targets the T tokens one further on. All
of it is arithmetic on (seed, step): nothing is drawn, stored or shared. numpy only.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tielab.errors import RequestError

Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

NUM_ROUNDS = 8
GOLDEN = 0x9E3779B97F4A7C15
MASK_64 = (1 << 64) - 1


def _mix(words: Words) -> Words:
    """splitmix64's finalizer: every input bit changes every output bit with chance one half."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _word(value: int) -> Words:
    # An array, not a scalar: numpy warns when scalars wrap around.
    return np.array([value & MASK_64], dtype=np.uint64)


ROUND_CONSTANTS = [_word(number * GOLDEN) for number in range(1, NUM_ROUNDS + 1)]


def _feistel(words: Words, keys: Words, num_high: int, num_low: int) -> Words:
    """A keyed permutation of range(num_high * num_low), elementwise; ``keys`` is as long as ``words``."""
    highs, lows = np.uint64(num_high), np.uint64(num_low)
    high, low = np.divmod(words, lows)
    for even, odd in zip(ROUND_CONSTANTS[::2], ROUND_CONSTANTS[1::2], strict=True):
        high = (high + _mix(low + (keys + even)) % highs) % highs
        low = (low + _mix(high + (keys + odd)) % lows) % lows
    return high * lows + low


def permute(indices: npt.ArrayLike, num_items: int, seed: int, epoch: npt.ArrayLike) -> Indices:
    """Where a permutation of range(num_items), keyed by (seed, epoch), sends each index.

    Memory and time grow with the number of indices, not with ``num_items``: a Feistel network
    permutes a nearly square grid that holds ``num_items``, and a result beyond them is sent on
    until it is inside (cycle walking; Black and Rogaway 2002, Ciphers with arbitrary finite domains).

    Args:
        indices: shape (k,), each in [0, num_items).
        epoch: one for all, or one for each index.
    """
    words = np.atleast_1d(np.asarray(indices)).astype(np.uint64)
    epochs = np.atleast_1d(np.asarray(epoch)).astype(np.uint64)
    keys = np.broadcast_to(_mix(_mix(_word(seed + GOLDEN)) + epochs * np.uint64(GOLDEN)), words.shape)
    num_high = math.isqrt(num_items - 1) + 1
    num_low = -(-num_items // num_high)
    words = _feistel(words, keys, num_high, num_low)
    while (outside := words >= np.uint64(num_items)).any():
        words[outside] = _feistel(words[outside], keys[outside], num_high, num_low)
    return words.astype(np.int64)


@dataclass(frozen=True)
class TrainingOrder:
    """Which windows each optimizer step reads: every window once per epoch, in an order of its own."""

    num_windows: int
    batch_size: int
    """Windows per optimizer step, over all processes and micro-batches."""
    seed: int

    def windows(self, step: int) -> Indices:
        """The window numbers of an optimizer step, shape (batch_size,): a function of (seed, step) alone."""
        return self.windows_of_steps(step, 1).reshape(-1)

    def windows_of_steps(self, first: int, num_steps: int) -> Indices:
        """Those of several steps, shape (num_steps, batch_size); for many at once each takes less time."""
        positions = first * self.batch_size + np.arange(num_steps * self.batch_size, dtype=np.int64)
        epochs, places = np.divmod(positions, self.num_windows)
        return permute(places, self.num_windows, self.seed, epochs).reshape(num_steps, self.batch_size)


def batch_hash(order: TrainingOrder, num_batches: int = 100) -> str:
    """Identity of the data order: sha256 over the window numbers of the first optimizer steps."""
    windows = order.windows_of_steps(0, num_batches)
    return hashlib.sha256(windows.astype("<i8").tobytes()).hexdigest()


def num_training_windows(num_tokens: int, block_size: int, stride: int) -> int:
    """Windows of T inputs and T targets, ``stride`` apart, that fit into a stream of n tokens."""
    return max(0, (num_tokens - block_size - 1) // stride + 1)


def cut(tokens: npt.NDArray[Any], starts: npt.ArrayLike, block_size: int) -> tuple[Indices, Indices]:
    """Inputs and targets of the windows at ``starts``: two (B, T) int64 arrays, targets one token later."""
    offsets = np.arange(block_size + 1, dtype=np.int64)
    chunk = np.asarray(tokens[np.asarray(starts, dtype=np.int64)[:, None] + offsets], dtype=np.int64)
    return np.ascontiguousarray(chunk[:, :-1]), np.ascontiguousarray(chunk[:, 1:])


@dataclass(frozen=True)
class EvaluationOrder:
    """Windows that score tokens 1 to n-1 once each, in order, whatever the stride.

    The first window scores all its targets, each next one the ``stride`` targets beyond the one
    before. The last is moved back so that it is full: its overlap is context only.

    Raises:
        RequestError: n < T + 1, or a stride beyond T, which would skip tokens.
    """

    num_tokens: int
    block_size: int
    stride: int

    def __post_init__(self) -> None:
        if self.num_tokens < self.block_size + 1 or not 1 <= self.stride <= self.block_size:
            raise RequestError(
                f"windows of block_size {self.block_size} and stride {self.stride} cannot score "
                f"{self.num_tokens} tokens; a window needs block_size + 1 tokens, a stride must lie between "
                "1 and block_size"
            )

    @property
    def num_windows(self) -> int:
        return -(-self._last // self.stride) + 1

    @property
    def _last(self) -> int:
        """Where the last window begins."""
        return self.num_tokens - self.block_size - 1

    def windows(self, numbers: Indices) -> tuple[Indices, Indices]:
        """Where windows begin, and the first target position that each scores; as many as ``numbers``."""
        starts = np.minimum(numbers * self.stride, self._last)
        before = np.minimum((numbers - 1) * self.stride, self._last)
        return starts, np.where(numbers == 0, 0, self.block_size - (starts - before))
