"""The output side: logits, confidence and calibration, and how much a position predicts its own input.

N positions, V vocabulary, D width. z_t are the logits at position t, h_t the vector the head scores, x_t the
input id, y_t the target id, p = softmax(z).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import lightning.pytorch as L
import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics.functional.classification import binary_calibration_error

from tielab.data.datamodule import TextDataModule
from tielab.data.windows import cut
from tielab.diagnostics.base import Measurement, ValidationDiagnostic, check_count, matrix, single
from tielab.models.minigpt import MiniGPT
from tielab.training.task import LanguageModelTask

NUM_BINS = 15


@dataclass
class OutputSums:
    """What ``output_quantities`` is computed from, added up over any number of windows."""

    num_positions: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    max_logit: float = 0.0
    confidences: list[Tensor] = field(default_factory=list)
    correct: list[Tensor] = field(default_factory=list)

    def add(self, logits: Tensor, hidden: Tensor, input_ids: Tensor, targets: Tensor) -> None:
        """Take N positions in: logits (N, V), hidden (N, D), input_ids (N,), targets (N,)."""
        logits, hidden = logits.float(), hidden.float()
        mean = logits.mean(dim=1)
        deviation = (logits - mean[:, None]).square().mean(dim=1).sqrt()  # std_mean takes ten times as long
        log_partition = logits.logsumexp(dim=1)
        log_p = logits - log_partition[:, None]
        confidence, prediction = log_p.max(dim=1)
        rows = torch.arange(len(logits), device=logits.device)
        each = {
            "logit_std": deviation,
            "hidden_norm": hidden.norm(dim=1),
            "entropy": -(log_p.exp() * log_p).sum(dim=1),
            "nll": -log_p[rows, targets],
            "log_partition": log_partition,
            "log_partition_squared": log_partition.double().square(),
            "self_prediction": prediction == input_ids,
            "self_logit": (logits[rows, input_ids] - mean) / deviation,
        }
        for name, values in each.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(values.double().sum())
        self.num_positions += len(logits)
        self.max_logit = float(np.maximum(self.max_logit, float(logits.abs().max())))  # NaN stays
        self.confidences.append(confidence.exp().cpu())
        self.correct.append((prediction == targets).cpu())


def output_quantities(found: OutputSums) -> dict[str, float]:
    """Means over the positions, their calibration and the spread of the log-partition, by name.

    logit_std: standard deviation over the vocabulary. self_prediction: share of positions whose most likely
    next token is the current one. self_logit: (z_t[x_t] - mean_k z_t[k]) / std_k z_t[k].
    calibration_gap: entropy - NLL, below 0 for an over-confident model (Braverman et al. 2020).
    ece_15: expected calibration error over 15 bins of the top probability (Guo et al. 2017).
    """
    means = {name: total / found.num_positions for name, total in found.sums.items()}
    square = means.pop("log_partition_squared")
    mean = means.pop("log_partition")
    return {
        **means,
        "max_logit": found.max_logit,
        "log_partition_mean": mean,
        "log_partition_variance": square - mean**2,
        "calibration_gap": means["entropy"] - means["nll"],
        "ece_15": calibration_error(torch.cat(found.confidences), torch.cat(found.correct)),
    }


def calibration_error(confidences: Tensor, correct: Tensor) -> float:
    """Mean distance of confidence and accuracy over 15 bins of equal width; NaN if one is not finite.

    torchmetrics has it for several classes as well, but would take all probabilities (N, V) at once.
    """
    if not confidences.isfinite().all():
        return float("nan")
    error = binary_calibration_error(confidences, correct.int(), NUM_BINS, "l1", validate_args=False)
    return float(error)


class OutputStatistics(ValidationDiagnostic):
    """Logs the output side on windows spread evenly over the validation split, the same ones every time.

    The first measurement is before any update: there a tied model may predict its own input.

    Args:
        num_windows: how many windows of block_size tokens; each process of a run scores them all.

    Raises:
        RequestError: num_windows is no whole number of at least 1.
    """

    name = "output_statistics"
    prefix = "output"

    def __init__(self, num_windows: int):
        super().__init__()
        check_count(self, "num_windows", num_windows)
        self.num_windows = num_windows

    def measure(self, trainer: L.Trainer, task: LanguageModelTask) -> Measurement:
        data = trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, TextDataModule)
        found = OutputSums()
        context = trainer.precision_plugin.val_step_context()
        with torch.no_grad(), context, evaluating(task.model), head_inputs(task.model) as hidden:
            for input_ids, targets in even_windows(data, self.num_windows):
                input_ids, targets = input_ids.to(task.device), targets.to(task.device)
                logits = task.model(input_ids[None])[0]
                found.add(logits, hidden.pop()[0], input_ids, targets)
        row_norm = float(matrix(task.model.lm_head).detach().float().norm(dim=1).mean())
        return single(**output_quantities(found), head_row_norm=row_norm)


def even_windows(data: TextDataModule, num_windows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets, (T,) each, of windows at equal distances; fewer if the split has fewer places."""
    tokens, block_size = data.prepared.validation.tokens, data.data_config["block_size"]
    last = len(tokens) - block_size - 1
    starts = np.unique(np.linspace(0, last, num_windows).round().astype(np.int64))
    for window in zip(*cut(tokens, starts, block_size), strict=True):
        input_ids, targets = (torch.from_numpy(ids) for ids in window)
        yield input_ids, targets


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout, and afterwards as it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def head_inputs(model: MiniGPT) -> Iterator[list[Tensor]]:
    """A list that gets what the head is given to score."""
    given: list[Tensor] = []
    hook = model.lm_head.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
    try:
        yield given
    finally:
        hook.remove()
