"""The finished model scored again, with other amounts of context before each token."""

from collections.abc import Callable, Iterable, Sequence

import lightning.pytorch as L
import torch

from tielab.record import Validation
from tielab.training.task import LanguageModelTask

EvaluationLoader = Callable[[int], Iterable[tuple[torch.Tensor, ...]]]
"""From a stride to this process's batches of the whole validation split."""


class CheckStrides(L.Callback):
    """Scores the validation split at each stride when the training is complete.

    At the end of the fit rather than in a pass of its own: all processes are still together, and no
    callback or logger takes the result for that of another validation.
    """

    def __init__(self, strides: Sequence[int], loader: EvaluationLoader):
        self._strides = strides
        self._loader = loader
        self.validations: dict[int, Validation] = {}

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, LanguageModelTask)
        if not pl_module.validations:
            return  # stopped so early that the run will be refused for it
        for stride in self._strides:
            self.validations[stride] = score(trainer, pl_module, self._loader(stride))
            _check_same_tokens(self.validations[stride], pl_module.validations[-1], stride)


def score(
    trainer: L.Trainer, task: LanguageModelTask, batches: Iterable[tuple[torch.Tensor, ...]]
) -> Validation:
    """One pass over batches as Lightning's own validation does it; all processes must call it."""
    training = task.training
    task.eval()
    # Not inference mode: weights that a sharded model gathers in it could not be trained with.
    with torch.no_grad():
        for batch in batches:
            trainer.strategy.validation_step(trainer.strategy.batch_to_device(batch), 0)
    task.train(training)
    return task.take_scores()[0]


def _check_same_tokens(found: Validation, expected: Validation, stride: int) -> None:
    for name in ("num_tokens", "num_bytes"):
        if getattr(found, name) != getattr(expected, name):
            raise RuntimeError(
                f"stride {stride} scored {name}={getattr(found, name)}, the validation before "
                f"{getattr(expected, name)}"
            )
