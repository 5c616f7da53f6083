"""The validation loss by how often a token occurs in the training text.

B batch, T positions, G groups of tokens by frequency.
"""

from typing import Any

import lightning.pytorch as L
import numpy as np
import torch
from torch import Tensor

from tielab.diagnostics.base import Diagnostic, Measurement, Values, is_fitting, plain
from tielab.diagnostics.columns import GROUP_LABELS, NUM_DECILES, UNUSED
from tielab.diagnostics.frequency import frequencies
from tielab.training.task import LanguageModelTask

ENDS = ("target", "input")


class FrequencyLoss(Diagnostic):
    """Logs nats per token of the whole validation split by decile of the target's and of the input's count.

    The sums of nats and the numbers of tokens of the last validation are in the summary: the difference of
    two runs is the sum of what each group adds to it.
    """

    name = "frequency_loss"
    prefix = "loss"

    def __init__(self) -> None:
        super().__init__()
        self._sums = torch.zeros(0)
        """Nats and tokens of every group, by target and by input: (2, 2, G) float64."""
        self._nats: Tensor | None = None
        self._last: dict[str, Values] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._groups = torch.from_numpy(frequencies(trainer).groups).to(pl_module.device)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not is_fitting(trainer):
            return
        assert isinstance(pl_module, LanguageModelTask)
        self._sums = torch.zeros(2, 2, len(GROUP_LABELS), dtype=torch.float64, device=pl_module.device)
        score = pl_module.model.token_nats

        def scored(input_ids: Tensor, targets: Tensor) -> Tensor:
            self._nats = score(input_ids, targets)
            return self._nats

        # Listened to, not computed again: the scores of a whole split take a noticeable part of a run.
        pl_module.model.token_nats = scored  # type: ignore[method-assign]

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if self._nats is None:
            return
        input_ids, targets, counted, _ = batch
        nats = self._nats.double().masked_fill(~counted, 0.0)
        for sums, ids in zip(self._sums, (targets, input_ids), strict=True):
            groups = self._groups[ids].flatten()
            sums[0].index_add_(0, groups, nats.flatten())
            sums[1].index_add_(0, groups, counted.double().flatten())
        self._nats = None

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not is_fitting(trainer):
            return
        assert isinstance(pl_module, LanguageModelTask)
        self._release(pl_module)
        sums = trainer.strategy.reduce(self._sums, reduce_op="sum")
        assert isinstance(sums, Tensor)
        self._last = {end: values.cpu().numpy() for end, values in zip(ENDS, sums, strict=True)}
        found: Measurement = {end: nats_per_token(values) for end, values in self._last.items()}
        for values in found.values():
            values[0] = np.nan  # over all tokens it is val/loss
        self.keep(trainer, pl_module, trainer.global_step, found)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        self._release(pl_module)

    def _release(self, task: L.LightningModule) -> None:
        assert isinstance(task, LanguageModelTask)
        vars(task.model).pop("token_nats", None)
        self._nats = None

    def summary(self) -> dict[str, Any]:
        """Also the sums of the last validation, by decile and for the unused tokens."""
        of_groups = self.track.summary().items()
        overall = ("first", "mean", "last")
        found = {end: {k: v for k, v in values.items() if k not in overall} for end, values in of_groups}
        for end, (nats, tokens) in self._last.items():
            for name, sums in (("nats", nats), ("tokens", tokens)):
                found[end] |= {
                    f"last_{name}_by_decile": plain(sums[:NUM_DECILES]),
                    f"last_{name}_unused": plain(sums)[UNUSED],
                }
        return found

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "last": {end: sums.tolist() for end, sums in self._last.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._last = {end: np.array(sums) for end, sums in state_dict["last"].items()}


def nats_per_token(sums: Values) -> Values:
    """Sums of nats and numbers of tokens (2, G) as means over all tokens and by group: (1 + G,)."""
    nats, tokens = np.concatenate([sums.sum(axis=1, keepdims=True), sums], axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(nats / tokens)
