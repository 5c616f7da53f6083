"""The two ends of a model that this package trained, from its run's record. Imports no torch."""

from dataclasses import dataclass
from pathlib import Path

from tielab.errors import RequestError
from tielab.record import Record, read_record


@dataclass(frozen=True)
class RunInspection:
    """What a run's record says of the model's two ends."""

    path: Path
    record: Record

    @property
    def vocab_size(self) -> int:
        return int(self.record.data["vocab_size"])

    @property
    def embed_dim(self) -> int:
        """d, columns of the matrix; of a factorised one those of its first factor."""
        model = self.record.config["model"]
        return int(model.get("embed_rank") or model["embed_dim"])

    @property
    def matrix_size(self) -> int:
        """V x d."""
        return self.vocab_size * self.embed_dim

    @property
    def tied(self) -> bool:
        """Whether the model has one matrix at the end of the training."""
        return self.record.tied and self.record.parameters["head"] < self.matrix_size

    @property
    def disagrees(self) -> bool:
        """Whether the tie that was observed in training is not the one that was asked for."""
        observed = self.record.tie_observed
        return observed is not None and observed != self.record.tied


def inspect_run(folder: Path) -> RunInspection:
    """What the record in a run's folder says of its tie.

    Raises:
        RequestError: the run has not begun training, or its record lacks what is asked of it.
    """
    record = read_record(folder)
    inspection = RunInspection(folder, record)
    try:
        complete = inspection.matrix_size > 0 and record.parameters["total"] >= record.parameters["head"] >= 0
    except (KeyError, TypeError, ValueError):
        complete = False
    if not complete:
        raise RequestError(f"{folder}: its run was {record.status} before it had a model; name another run")
    return inspection
