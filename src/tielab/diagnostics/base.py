"""What every diagnostic shares: when it measures, where its numbers go, what the record keeps.

V vocabulary, D width. A *measurement* maps a quantity's name to an array: its value over all rows and,
where the quantity is taken by frequency, then its values over the G groups of ``frequency.py``.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import lightning.pytorch as L
import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from tielab.diagnostics.columns import GROUP_LABELS, NUM_DECILES, UNUSED
from tielab.errors import RequestError
from tielab.models.minigpt import MiniGPT
from tielab.models.sharding import is_sharded
from tielab.training.task import LanguageModelTask

Values = npt.NDArray[np.float64]
Measurement = dict[str, Values]


class Track:
    """First, last and mean of every quantity over the measurements of a run; undefined values (NaN) aside."""

    def __init__(self) -> None:
        self._first: dict[str, list[float]] = {}
        self._last: dict[str, list[float]] = {}
        self._sums: dict[str, list[float]] = {}
        self._counts: dict[str, list[int]] = {}

    def add(self, measurement: Measurement) -> None:
        """Take one measurement in."""
        for name, values in measurement.items():
            defined = ~np.isnan(values)
            zeros = np.zeros(len(values))
            self._first.setdefault(name, values.tolist())
            self._last[name] = values.tolist()
            self._sums[name] = (self._sums.get(name, zeros) + np.where(defined, values, 0.0)).tolist()
            self._counts[name] = (self._counts.get(name, zeros.astype(int)) + defined).tolist()

    def summary(self) -> dict[str, Any]:
        """First, mean and last by quantity; mean and last of each group where it is taken by frequency."""
        return {name: self._summarize(name) for name in self._last}

    def _summarize(self, name: str) -> dict[str, Any]:
        sums, counts = self._sums[name], self._counts[name]
        mean = plain(
            [total / count if count else math.nan for total, count in zip(sums, counts, strict=True)]
        )
        first, last = plain(self._first[name]), plain(self._last[name])
        found: dict[str, Any] = {"first": first[0], "mean": mean[0], "last": last[0]}
        if len(mean) > 1:
            found |= {
                "mean_by_decile": mean[1 : 1 + NUM_DECILES],
                "last_by_decile": last[1 : 1 + NUM_DECILES],
                "mean_unused": mean[1 + UNUSED],
                "last_unused": last[1 + UNUSED],
            }
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"first": self._first, "last": self._last, "sums": self._sums, "counts": self._counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._first, self._last = dict(state["first"]), dict(state["last"])
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])


def plain(values: Sequence[float]) -> list[float | None]:
    """Values as JSON has them: None for one that is no finite number."""
    return [float(value) if math.isfinite(value) else None for value in values]


class Diagnostic(L.Callback):
    """A callback that watches a run without changing it: its weights are the same bit for bit.

    Its numbers go to the trainer's loggers while it runs, and ``summary`` into the record at the end.
    """

    name: ClassVar[str]
    """Key of the summary in ``record.diagnostics``."""
    prefix: ClassVar[str]
    """Of the names it logs under: ``PREFIX/QUANTITY`` and ``PREFIX_by_frequency/QUANTITY/GROUP``."""

    def __init__(self) -> None:
        self.track = Track()

    def summary(self) -> dict[str, Any]:
        """What was found, as plain numbers and lists; empty if nothing was measured."""
        return self.track.summary()

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if is_sharded(pl_module):
            raise RequestError(
                f"{self.name} reads whole matrices, found a sharded model; drop it or use trainer=ddp"
            )

    def keep(self, trainer: L.Trainer, task: LanguageModelTask, step: int, found: Measurement) -> None:
        """Log one measurement and take it into the summary.

        Args:
            step: number of optimizer steps done when the row is read, as in the rows of the loss.
        """
        self.track.add(found)
        row = {"tokens": task.tokens_seen, "seconds": task.seconds, **logged(self.prefix, found)}
        for logger in trainer.loggers:
            logger.log_metrics(row, step=step)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs for a summary of the whole."""
        return {"track": self.track.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.track.load_state_dict(state_dict["track"])


def check_count(diagnostic: Diagnostic, argument: str, value: Any) -> None:
    """Raise RequestError unless an argument is a whole number of at least 1."""
    if type(value) is not int or value < 1:
        raise RequestError(f"{diagnostic.name}: {argument}={value} must be a whole number of at least 1")


class SteppedDiagnostic(Diagnostic):
    """One that measures at the first optimizer step, every ``every_n_steps``-th and the last.

    Raises:
        RequestError: every_n_steps is no whole number of at least 1.
    """

    def __init__(self, every_n_steps: int) -> None:
        super().__init__()
        check_count(self, "every_n_steps", every_n_steps)
        self.every_n_steps = every_n_steps

    def is_due(self, step: int, num_steps: int) -> bool:
        """Whether optimizer step 1 <= step <= num_steps is measured."""
        return step == 1 or step % self.every_n_steps == 0 or step == num_steps


class ValidationDiagnostic(Diagnostic):
    """One that measures before the first optimizer step and at every validation of a fit."""

    @abstractmethod
    def measure(self, trainer: L.Trainer, task: LanguageModelTask) -> Measurement:
        """The quantities now; called in the first process only."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.global_step == 0:
            self._measure(trainer, pl_module)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if is_fitting(trainer):
            self._measure(trainer, pl_module)

    def _measure(self, trainer: L.Trainer, task: L.LightningModule) -> None:
        # Every process holds the same weights, and nothing is gathered: one of them is enough.
        if trainer.is_global_zero:
            assert isinstance(task, LanguageModelTask)
            self.keep(trainer, task, trainer.global_step, self.measure(trainer, task))


def logged(prefix: str, found: Measurement) -> dict[str, float]:
    """A measurement as the loggers get it, without undefined values."""
    row = {}
    for name, values in found.items():
        row[f"{prefix}/{name}"] = float(values[0])
        for label, value in zip(GROUP_LABELS, values[1:], strict=False):
            row[f"{prefix}_by_frequency/{name}/{label}"] = float(value)
    return {name: value for name, value in row.items() if not np.isnan(value)}


def is_fitting(trainer: L.Trainer) -> bool:
    """Whether a validation belongs to a training, and is not a score of a finished model."""
    return trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking


def model_of(task: L.LightningModule) -> MiniGPT:
    """The network of a task."""
    assert isinstance(task, LanguageModelTask)
    return task.model


def matrix(module: nn.Module) -> nn.Parameter:
    """The matrix that a token embedding looks up in, or that a head scores with."""
    weight = module.weight
    assert isinstance(weight, nn.Parameter)
    return weight


def matrices(model: MiniGPT) -> dict[str, nn.Parameter]:
    """``embedding``: the input matrix, also of a tied model; ``head``: the output matrix if it is another.

    The rows of a permuted model's matrix stand for the ids that the head scores with them.
    """
    found = {"embedding": matrix(model.token_embed), "head": matrix(model.lm_head)}
    if found["head"] is found["embedding"]:
        del found["head"]
    return found


def with_groups(row_values: Tensor, membership: Tensor) -> Values:
    """Sums of a value per row (V,) over all rows and over each group: (1 + G,)."""
    values = row_values.double()
    sums = torch.cat([values.sum()[None], membership @ values])
    return sums.cpu().numpy()


def single(**values: float) -> Measurement:
    """A measurement of quantities that are not taken by frequency."""
    return {name: np.array([value], dtype=np.float64) for name, value in values.items()}
