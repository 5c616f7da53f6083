"""The metric file of a run: ``metrics.csv``, complete up to the last row whatever kills the run.

It is always on and needs no account; W&B and the reports are views of the same numbers.
"""

import csv
import io
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers.logger import Logger

from tielab.errors import RequestError
from tielab.record import METRICS_NAME, write_atomic
from tielab.tracking.rank import is_global_rank_zero

METRIC_COLUMNS = {
    "step": "Step number that Lightning gave the row.",
    "tokens": "Training tokens consumed so far, all processes together.",
    "seconds": "Wall time since the run started.",
    "train/loss": "Nats per token, mean over the optimizer steps since the last row.",
    "learning_rate": "Of the optimizer step.",
    "gradient_norm": "Of all gradients together, before clipping.",
    "tokens_per_second": "Of training, in the last complete interval; all processes together.",
    "val/loss": "Nats per token of the whole validation split.",
    "val/perplexity": "exp of val/loss.",
    "val/word_perplexity": "exp of nats per whitespace-separated word of the whole validation split.",
    "val/bits_per_byte": "Bits per UTF-8 byte of the whole validation split.",
}
"""Every metric the harness logs itself, in file order. A row leaves blank what it does not report.

A diagnostic's columns are added when it first logs: ``diagnostics/columns.py``."""

IGNORED = frozenset({"epoch"})
"""Lightning adds it to every row; windows are drawn by step, so it says nothing."""


class MetricsCsv(Logger):
    """Appends each row of metrics to ``<folder>/metrics.csv`` at once, on global rank zero.

    A metric that is not in ``METRIC_COLUMNS`` gets a column of its own after the others, the first
    time it is logged.

    Args:
        folder: The run's folder; made if missing.
        resume_step: Last step of an earlier attempt to keep. Later rows come from steps that are
            about to be repeated, and are dropped. None: the run starts from nothing.

    Raises:
        RequestError: the file exists and ``resume_step`` is None.
    """

    def __init__(self, folder: str | Path, resume_step: int | None = None) -> None:
        super().__init__()
        self.path = Path(folder) / METRICS_NAME
        self._columns = list(METRIC_COLUMNS)
        self._file: io.FileIO | None = None
        if is_global_rank_zero():
            self._start(resume_step)

    def _start(self, resume_step: int | None) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.path.open("x", encoding="utf-8") as file:
                file.write(_line(self._columns))
        except FileExistsError:
            if resume_step is None:
                raise RequestError(
                    f"{self.path} exists already; resume that run, or give this one a new folder"
                ) from None
            self._columns, rows = _read(self.path)
            self._rewrite([row for row in rows if not row[0] or int(row[0]) <= resume_step])

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append one whole line; a crash right after the call cannot lose it."""
        row: dict[str, float | None] = {"step": step, **metrics}
        new = [name for name in row if name not in self._columns and name not in IGNORED]
        if new:
            self._add_columns(new)
        if self._file is None:
            # Unbuffered: one write call is one line, so a reader or a kill never sees half of one.
            self._file = io.FileIO(self.path, "a")
        self._file.write(_line([_text(row.get(name)) for name in self._columns]).encode())

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing: run.yaml holds them."""

    def finalize(self, status: str) -> None:
        """Close the file; a later row opens it again."""
        self._close()

    @property
    def name(self) -> str:
        """Empty, so that paths Lightning builds from it stay in the run's folder."""
        return ""

    @property
    def version(self) -> str:
        """Empty, so that paths Lightning builds from it stay in the run's folder."""
        return ""

    @property
    def save_dir(self) -> str:
        """The run's folder."""
        return str(self.path.parent)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_file": None}

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _add_columns(self, names: list[str]) -> None:
        _, rows = _read(self.path)
        self._columns += names
        self._rewrite([row + [""] * len(names) for row in rows])

    def _rewrite(self, rows: list[list[str]]) -> None:
        self._close()
        write_atomic(self.path, _line(self._columns) + "".join(map(_line, rows)))


def _text(value: float | None) -> str:
    """The shortest text that reads back as the same number."""
    if value is None:
        return ""
    return repr(value) if type(value) is int else repr(float(value))


def _line(cells: list[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and whole rows; a line torn by a full disk is left out."""
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    lines = list(csv.reader(io.StringIO(whole)))
    if not lines:
        return list(METRIC_COLUMNS), []
    header = lines[0]
    return header, [line for line in lines[1:] if len(line) == len(header)]
