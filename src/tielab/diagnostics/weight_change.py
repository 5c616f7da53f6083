"""How far the matrices move: in one step, and from where they began.

V vocabulary, D width.
"""

from dataclasses import dataclass
from typing import Any

import lightning.pytorch as L
import numpy as np
import torch
from torch import Tensor, nn

from tielab.diagnostics.base import Measurement, SteppedDiagnostic, Values, matrices, model_of, with_groups
from tielab.diagnostics.frequency import frequencies
from tielab.training.task import LanguageModelTask


@dataclass(frozen=True)
class Snapshot:
    """A parameter and its values before a step."""

    parameter: nn.Parameter
    before: Tensor

    @classmethod
    def of(cls, parameter: nn.Parameter) -> "Snapshot":
        return cls(parameter, parameter.detach().clone())

    def relative_change(self) -> float:
        """||after - before||_F / ||before||_F; NaN for a matrix of zeros."""
        norm = float(torch.linalg.vector_norm(self.before))
        change = float(torch.linalg.vector_norm(self.parameter.detach() - self.before))
        return change / norm if norm else float("nan")


class WeightChange(SteppedDiagnostic):
    """Logs the relative update of a step, and the cosine of every row with its initial values.

    The update of S, or of E and W, stands beside the median over the matrices of the blocks. The drift is
    cos(S_k(t), S_k(0)), mean over rows, also by frequency; beside it the number of rows that are the initial
    ones bit for bit. A head that is split off later drifts from the values its rows began with.

    Args:
        every_n_steps: optimizer steps from one measurement to the next; a measured step copies all matrices.
    """

    name = "weight_change"
    prefix = "weights"

    def __init__(self, every_n_steps: int):
        super().__init__(every_n_steps)
        self._start: dict[str, Tensor] = {}
        self._ends: dict[str, Snapshot] = {}
        self._blocks: list[Snapshot] = []

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        # Before a checkpoint is loaded: a model is built with its initial values, also that of a resumed run.
        if stage == "fit":
            found = matrices(model_of(pl_module))
            self._start = {name: parameter.detach().clone() for name, parameter in found.items()}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        counted = frequencies(trainer)
        self._membership = counted.membership(pl_module.device)
        self._start = {name: values.to(pl_module.device) for name, values in self._start.items()}

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        assert isinstance(pl_module, LanguageModelTask)
        if self.is_due(trainer.global_step + 1, pl_module.num_steps):
            model = pl_module.model
            self._ends = {name: Snapshot.of(parameter) for name, parameter in matrices(model).items()}
            self._blocks = [Snapshot.of(p) for p in model.blocks.parameters() if p.dim() > 1]

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        if not self._ends:
            return
        assert isinstance(pl_module, LanguageModelTask)
        found = self._measure()
        self._ends, self._blocks = {}, []
        self.keep(trainer, pl_module, trainer.global_step, found)

    def _measure(self) -> Measurement:
        blocks = np.median([snapshot.relative_change() for snapshot in self._blocks])
        found: Measurement = {"update_blocks": np.array([blocks])}
        for name, snapshot in self._ends.items():
            found[f"update_{name}"] = np.array([snapshot.relative_change()])
            now = snapshot.parameter.detach()
            start = self._start.get(name, self._start["embedding"]).to(now.dtype)
            found[f"drift_{name}"] = drift(now, start, self._membership)
            found[f"unmoved_rows_{name}"] = with_groups((now == start).all(dim=1), self._membership)
        return found


def drift(now: Tensor, start: Tensor, membership: Tensor) -> Values:
    """Mean cosine of the rows (V, D) with their initial values, over all and by group: (1 + G,).

    Rows of zeros have no direction and are left out; NaN where none is left.
    """
    now, start = now.float(), start.float()
    norms = now.norm(dim=1) * start.norm(dim=1)
    cosines = torch.where(norms > 0, (now * start).sum(dim=1) / norms, 0.0)
    with np.errstate(invalid="ignore"):
        return with_groups(cosines, membership) / with_groups(norms > 0, membership)
