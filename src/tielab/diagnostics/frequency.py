"""How often each token occurs in the training text, and its rows in ten groups of rising frequency.

V vocabulary; G groups: ten deciles and the rows that the training text never uses.
"""

from dataclasses import dataclass
from functools import lru_cache

import lightning.pytorch as L
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tielab.data.budget import Counts, count_tokens
from tielab.data.datamodule import TextDataModule, TrainingBatches
from tielab.diagnostics.columns import GROUP_LABELS, NUM_DECILES, UNUSED

"""Tokens counted at a time: numpy makes 8 bytes of each."""


@dataclass(frozen=True)
class Frequencies:
    """Training counts of the vocabulary, and the group of every row."""

    counts: Counts
    """(V,)"""
    groups: Counts
    """(V,), 0 for the rarest tenth to 9 for the most frequent, 10 for rows never used."""

    @property
    def used(self) -> npt.NDArray[np.bool_]:
        """Which rows occur in the training text, (V,)."""
        return self.counts > 0

    @property
    def group_sizes(self) -> Counts:
        """Rows in each group, (G,)."""
        return np.bincount(self.groups, minlength=len(GROUP_LABELS))

    def membership(self, device: torch.device) -> Tensor:
        """(G, V) of zeros and ones: its product with a value per row is the sum over each group."""
        groups = torch.from_numpy(self.groups).to(device)
        return (groups == torch.arange(len(GROUP_LABELS), device=device)[:, None]).double()


def frequency_groups(counts: Counts) -> Counts:
    """Deciles of the used rows by count, equal in rows (ids break ties); 10 for the rows never used."""
    groups = np.full(len(counts), UNUSED, dtype=np.int64)
    by_count = np.argsort(counts, kind="stable")
    used = by_count[counts[by_count] > 0]
    for decile, rows in enumerate(np.array_split(used, NUM_DECILES)):
        groups[rows] = decile
    return groups


def frequencies(trainer: L.Trainer) -> Frequencies:
    """Of the training tokens that the trainer's data module reads."""
    data = trainer.datamodule  # type: ignore[attr-defined]
    assert isinstance(data, TextDataModule), "the diagnostics count the tokens of a TextDataModule"
    return _frequencies(data)


@lru_cache(maxsize=1)  # the diagnostics of a run share it
def _frequencies(data: TextDataModule) -> Frequencies:
    batches = data.train_dataloader().dataset
    assert isinstance(batches, TrainingBatches)
    counts = count_tokens(batches.split.tokens, data.prepared.tokenizer.vocab_size)
    return Frequencies(counts, frequency_groups(counts))
