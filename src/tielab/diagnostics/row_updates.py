"""Which rows of the matrices the text reaches, and which a step leaves as they are.

V vocabulary, D width, B batch, T positions, G groups of rows by frequency.
"""

from typing import Any

import lightning.pytorch as L
import torch
from torch import Tensor

from tielab.diagnostics.base import Measurement, SteppedDiagnostic, Values, matrices, with_groups
from tielab.diagnostics.columns import NUM_DECILES, UNUSED
from tielab.diagnostics.frequency import frequencies
from tielab.training.task import LanguageModelTask


class RowUpdates(SteppedDiagnostic):
    """Counts for every row the steps with its token among the inputs and among the targets.

    At measured steps it logs, over all rows and by frequency, how many rows the step left unchanged bit for
    bit (a row without a gradient still moves by momentum and weight decay), how many tokens were among
    inputs and targets, and how many have been among neither so far.

    Args:
        every_n_steps: optimizer steps from one measurement to the next; a measured step copies the matrices.
    """

    name = "row_updates"
    prefix = "rows"

    def __init__(self, every_n_steps: int):
        super().__init__(every_n_steps)
        self.num_steps = 0
        """Optimizer steps counted."""
        self.steps_among: Tensor | None = None
        """Steps with a token among the inputs, among the targets: (2, V) int64."""
        self._now: Tensor | None = None
        self._before: dict[str, tuple[Tensor, Tensor]] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        counted = frequencies(trainer)
        self._membership = counted.membership(pl_module.device)
        self._group_sizes = counted.group_sizes
        shape = (2, len(counted.counts))
        self._now = torch.zeros(shape, dtype=torch.uint8, device=pl_module.device)
        kept = torch.zeros(shape, dtype=torch.int64) if self.steps_among is None else self.steps_among
        self.steps_among = kept.to(pl_module.device)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert self._now is not None
        for flags, ids in zip(self._now, batch, strict=True):
            flags.index_fill_(0, ids.flatten(), 1)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        assert isinstance(pl_module, LanguageModelTask)
        assert self._now is not None
        assert self.steps_among is not None
        if trainer.world_size > 1:
            self._now = trainer.strategy.reduce(self._now, reduce_op="max")
        self.steps_among += self._now
        self.num_steps += 1
        if self.is_due(trainer.global_step + 1, pl_module.num_steps):
            found = matrices(pl_module.model)
            self._before = {name: (p.detach(), p.detach().clone()) for name, p in found.items()}

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        if self._before:
            assert isinstance(pl_module, LanguageModelTask)
            self.keep(trainer, pl_module, trainer.global_step, self._measure())
            self._before = {}
        if not trainer.fit_loop.epoch_loop._should_accumulate():
            assert self._now is not None
            self._now.zero_()

    def _measure(self) -> Measurement:
        assert self._now is not None
        assert self.steps_among is not None
        never = self.steps_among == 0
        rows = {
            f"unchanged_{name}": (now == before).all(dim=1) for name, (now, before) in self._before.items()
        }
        rows |= {"in_inputs": self._now[0], "in_targets": self._now[1]}
        rows |= {"never_in_inputs": never[0], "never_in_targets": never[1], "untouched": never.all(dim=0)}
        return {name: with_groups(flags, self._membership) for name, flags in rows.items()}

    def summary(self) -> dict[str, Any]:
        """Also ``num_steps``, and the mean number of steps per row among inputs and targets, by group."""
        if self.steps_among is None or self.num_steps == 0:
            return {}
        found: dict[str, Any] = {"num_steps": self.num_steps, **self.track.summary()}
        for name, steps in zip(("inputs", "targets"), self.steps_among, strict=True):
            found |= self._steps_per_row(name, with_groups(steps, self._membership))
        return found

    def _steps_per_row(self, name: str, steps: Values) -> dict[str, Any]:
        sizes = self._group_sizes.tolist()
        per_row = [total / size if size else None for total, size in zip(steps[1:], sizes, strict=True)]
        return {
            f"steps_in_{name}": float(steps[0]) / sum(sizes),
            f"steps_in_{name}_by_decile": per_row[:NUM_DECILES],
            f"steps_in_{name}_unused": per_row[UNUSED],
        }

    def state_dict(self) -> dict[str, Any]:
        counts = None if self.steps_among is None else self.steps_among.cpu()
        return {**super().state_dict(), "num_steps": self.num_steps, "steps_among": counts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.num_steps, self.steps_among = state_dict["num_steps"], state_dict["steps_among"]
