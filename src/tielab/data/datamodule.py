"""Token batches for Lightning: exact on resume, the same for any number of workers and processes.

B batch, T positions. A batch is cut in one read of the memory-mapped tokens; which windows it
holds is arithmetic (``windows.py``), so no loader keeps any state but the number of steps done, nor
anything that grows with the corpus.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from tielab.data.budget import check_split_fits, training_split
from tielab.data.prepare import Prepared, TokenSplit
from tielab.data.windows import EvaluationOrder, Indices, TrainingOrder, cut, num_training_windows
from tielab.training.strategy import batch_share

TrainingBatch = tuple[Tensor, Tensor]
"""input_ids (B, T), targets (B, T), both int64."""
EvaluationBatch = tuple[Tensor, Tensor, Tensor, Tensor]
"""input_ids (B, T), targets (B, T), scored (B, T) bool, num_bytes (B, T) int64 of each target."""
Item = TypeVar("Item")
WINDOWS_AT_ONCE = 1024
"""Computed together: most of the time goes into numpy's calls, not into numbers."""


class TrainingBatches(Dataset[TrainingBatch]):
    """Micro-batch i of one process: micro-batch i % A of optimizer step i // A.

    A step's windows are shared out over micro-batches and processes; together they are
    ``order.windows(step)`` whatever the two numbers are.
    """

    def __init__(
        self,
        split: TokenSplit,
        order: TrainingOrder,
        *,
        block_size: int,
        stride: int,
        rank: int,
        world_size: int,
        num_micro_batches: int,
    ) -> None:
        self.split = split
        self.order = order
        self.block_size = block_size
        self.stride = stride
        self.rank = rank
        self.world_size = world_size
        self.num_micro_batches = num_micro_batches
        self._steps_at_once = max(1, WINDOWS_AT_ONCE // order.batch_size)
        self._block, self._windows = -1, np.zeros((0, order.batch_size), dtype=np.int64)

    def windows(self, micro_batch: int) -> Indices:
        """The window numbers of a micro-batch, shape (B,)."""
        step, part = divmod(micro_batch, self.num_micro_batches)
        share = part * self.world_size + self.rank
        shares = self._of_step(step).reshape(self.num_micro_batches * self.world_size, -1)
        windows: Indices = shares[share]
        return windows

    def _of_step(self, step: int) -> Indices:
        """``order.windows(step)``, computed for a block of steps at once, which the next ones are of too."""
        block, place = divmod(step, self._steps_at_once)
        if block != self._block:
            first = block * self._steps_at_once
            self._windows = self.order.windows_of_steps(first, self._steps_at_once)
            self._block = block
        windows: Indices = self._windows[place]
        return windows

    def __getitem__(self, micro_batch: int) -> TrainingBatch:
        starts = self.windows(micro_batch) * self.stride
        input_ids, targets = cut(self.split.tokens, starts, self.block_size)
        return torch.from_numpy(input_ids), torch.from_numpy(targets)


class EvaluationBatches(Dataset[EvaluationBatch]):
    """Batch i of one process over the windows ``[rank::world_size]`` of a whole split.

    Over all processes each token of the split but the first is scored exactly once. Every process
    has equally many batches, since a sharded forward pass needs all of them; one that has run out
    of windows reads the first again and scores nothing in it.
    """

    def __init__(
        self,
        split: TokenSplit,
        token_bytes: Indices,
        *,
        block_size: int,
        stride: int,
        batch_size: int,
        rank: int,
        world_size: int,
    ) -> None:
        self.split = split
        self.order = EvaluationOrder(split.num_tokens, block_size, stride)
        self.token_bytes = token_bytes
        self.block_size = block_size
        self.batch_size = batch_size
        self.numbers = range(rank, self.order.num_windows, world_size)
        """Of the windows of this process."""
        self.num_batches = -(-self.order.num_windows // (world_size * batch_size))

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, batch: int) -> EvaluationBatch:
        numbers = self.numbers[batch * self.batch_size : (batch + 1) * self.batch_size]
        starts, first_scored = self.order.windows(np.array(numbers, dtype=np.int64))
        if len(starts) == 0:
            starts, first_scored = np.array([0]), np.array([self.block_size])
        input_ids, targets = cut(self.split.tokens, starts, self.block_size)
        scored = np.arange(self.block_size) >= first_scored[:, None]
        arrays = (input_ids, targets, scored, self.token_bytes[targets])
        first, second, third, fourth = (torch.from_numpy(array) for array in arrays)
        return first, second, third, fourth


class RemainingBatches(Sampler[int]):
    """The numbers from ``first`` up to ``total``; its length is ``total``.

    Lightning counts on from the batches of the checkpoint, and takes the batch whose number
    reaches the loader's length for the last of the epoch.
    """

    def __init__(self, first: int, total: int) -> None:
        self.first = first
        self.total = total

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.total))

    def __len__(self) -> int:
        return self.total


class TokenLoader(DataLoader[Item]):
    """A DataLoader over whole batches that leaves the global random state alone."""

    def __init__(self, dataset: Dataset[Item], sampler: Sampler[int] | None, num_workers: int) -> None:
        super().__init__(
            dataset,
            batch_size=None,
            sampler=sampler,
            num_workers=num_workers,
            collate_fn=_as_it_is,
            # A process of the fork server would start its workers there too, and import torch in each.
            multiprocessing_context="fork" if num_workers else None,
            # A DataLoader without its own generator draws a seed from the global one per iteration.
            generator=torch.Generator(),
        )

    # Lightning warns that a loader without these cannot be resumed. The position is the number of
    # optimizer steps, and the data module keeps that.
    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass


def _as_it_is(batch: Item) -> Item:
    return batch


class TextDataModule(LightningDataModule):
    """Training, validation and test batches of a prepared corpus for ``num_steps`` optimizer steps."""

    def __init__(self, data_config: dict[str, Any], prepared: Prepared, num_steps: int) -> None:
        super().__init__()
        self.data_config = data_config
        self.prepared = prepared
        self.train_split = training_split(prepared, data_config["train_tokens"])
        self.num_steps = num_steps
        self.num_steps_done = 0

    @property
    def order(self) -> TrainingOrder:
        """Which windows each optimizer step reads."""
        config = self.data_config
        num_windows = num_training_windows(
            self.train_split.num_tokens, config["block_size"], config["stride"]
        )
        return TrainingOrder(num_windows, config["batch_size"], config["seed"])

    def train_dataloader(self) -> TokenLoader[TrainingBatch]:
        """The micro-batches of this process from the first step not yet done to the last.

        Its length counts those already done as well.
        """
        trainer = self.trainer
        num_micro_batches = trainer.accumulate_grad_batches if trainer else 1
        batches = TrainingBatches(
            self.train_split,
            self.order,
            block_size=self.data_config["block_size"],
            stride=self.data_config["stride"],
            num_micro_batches=num_micro_batches,
            **self._place(),
        )
        remaining = RemainingBatches(
            self.num_steps_done * num_micro_batches, self.num_steps * num_micro_batches
        )
        return TokenLoader(batches, remaining, self.data_config["num_workers"])

    def val_dataloader(self) -> TokenLoader[EvaluationBatch]:
        """The whole validation split, shared out over the processes."""
        return self.stride_dataloader(self.data_config["eval_stride"])

    def stride_dataloader(self, stride: int) -> TokenLoader[EvaluationBatch]:
        """The same tokens, ``stride`` of them newly scored by each window."""
        return self._evaluation_loader("validation", self.prepared.validation, stride)

    def test_dataloader(self) -> TokenLoader[EvaluationBatch]:
        """The whole test split, shared out over the processes."""
        return self._evaluation_loader("test", self.prepared.test, self.data_config["eval_stride"])

    def _evaluation_loader(self, name: str, split: TokenSplit, stride: int) -> TokenLoader[EvaluationBatch]:
        config = self.data_config
        check_split_fits(split, name, config["block_size"])
        batches = EvaluationBatches(
            split,
            self.prepared.tokenizer.token_bytes,
            block_size=config["block_size"],
            stride=stride,
            batch_size=config["eval_batch_size"],
            **self._place(),
        )
        return TokenLoader(batches, None, config["num_workers"])

    def _place(self) -> dict[str, int]:
        """Which of how many processes this is, those of a tensor-parallel group counted as one."""
        rank, world_size = batch_share(self.trainer) if self.trainer else (0, 1)
        return {"rank": rank, "world_size": world_size}

    def state_dict(self) -> dict[str, Any]:
        """The number of optimizer steps done: all that is needed to go on."""
        return {"num_steps_done": self.trainer.global_step if self.trainer else self.num_steps_done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.num_steps_done = state_dict["num_steps_done"]
