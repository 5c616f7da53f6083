"""The geometry of S, or of E and W, at the start and at every validation."""

import lightning.pytorch as L
import numpy as np
import torch
from torch import Tensor

from tielab.diagnostics.base import Measurement, ValidationDiagnostic, matrices, single
from tielab.diagnostics.frequency import frequencies
from tielab.diagnostics.geometry import centred, norm_frequency_correlation, shape
from tielab.training.task import LanguageModelTask


class EmbeddingGeometry(ValidationDiagnostic):
    """Logs the shape of the rows of the shared matrix, or of both matrices, that training text uses.

    Three times: as they are, weighted by their counts, and minus their mean (much of the anisotropy of
    embeddings is their mean: Bis et al. 2021). Rows that never occur are left out: in an untied model they
    keep their initial values, in a tied one they are only ever pushed away.
    """

    name = "embedding_geometry"
    prefix = "geometry"

    def measure(self, trainer: L.Trainer, task: LanguageModelTask) -> Measurement:
        counted = frequencies(trainer)
        used = torch.from_numpy(np.flatnonzero(counted.used)).to(task.device)
        counts = torch.from_numpy(counted.counts).to(task.device)[used]
        found: Measurement = {}
        for name, parameter in matrices(task.model).items():
            found |= describe_rows(parameter.detach()[used], counts, name)
        return found


def describe_rows(rows: Tensor, counts: Tensor, name: str) -> Measurement:
    """Every quantity of ``geometry.py`` as ``NAME_QUANTITY``; all NaN for rows that are not finite."""
    is_finite = bool(rows.isfinite().all())
    rows = rows if is_finite else torch.zeros_like(rows)  # which can be decomposed
    versions = {
        name: (rows, None),
        f"{name}_weighted": (rows, counts),
        f"{name}_centred": (centred(rows), None),
    }
    found = {f"{key}_{q}": v for key, given in versions.items() for q, v in shape(*given).items()}
    del found[f"{name}_centred_mean_share"]  # 0 by construction
    found[f"{name}_norm_frequency_correlation"] = norm_frequency_correlation(rows, counts)
    return single(**(found if is_finite else dict.fromkeys(found, float("nan"))))
