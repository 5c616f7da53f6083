"""Loggers whose numbers stay in files of this machine, for viewers that need no account."""

from abc import abstractmethod
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers.logger import Logger

from tielab.errors import RequestError
from tielab.tracking.metrics_csv import IGNORED
from tielab.tracking.rank import is_global_rank_zero
from tielab.trust import is_within


class LocalLogger(Logger):
    """Takes rows on global rank zero only, and is closed with the run's own exit status.

    Args:
        folder: Where the viewer looks, for all runs together.
        run_id: Names the run there.
        group: The sweep, if it is a job of one.
        resumed: Go on with the run of that id. Its first new row replaces what was logged from that step
            on: those steps are about to be repeated.

    Raises:
        RequestError: the names of run and group lead out of the folder.
    """

    def __init__(self, folder: Path, run_id: str, group: str | None, *, resumed: bool) -> None:
        super().__init__()
        self.folder, self.run_id, self.group, self.resumed = folder, run_id, group, resumed
        self.place = folder / (group or "") / run_id
        self.is_open = False
        if "/" in f"{group}{run_id}" or not is_within(self.place, [folder]):
            raise RequestError(f"a run {run_id!r} of {group!r} has no place in {folder}; start a new run")
        if is_global_rank_zero():
            self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Raise now, before the training begins, if nothing could be logged later."""

    @abstractmethod
    def open(self, first_step: int) -> None:
        """Start the run, or go on with it and drop its rows from ``first_step`` on."""

    @abstractmethod
    def write(self, row: dict[str, float], step: int) -> None:
        """Log a row of an open run."""

    @abstractmethod
    def close(self, *, succeeded: bool) -> None:
        """End an open run."""

    @abstractmethod
    def hint(self) -> str:
        """One line: the command that shows the runs of this folder."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Log one row at once."""
        assert step is not None, "both Lightning and the harness number their rows"
        if not self.is_open:
            # Lightning numbers the rows of other people's callbacks from 0, one below ours.
            self.open(step if "tokens" in metrics else step + 1)
            self.is_open = True
        self.write({name: float(value) for name, value in metrics.items() if name not in IGNORED}, step)

    def finish(self, exit_status: int) -> None:
        """Close the run: 0 marks it finished, anything else failed. Nothing to do where no row came."""
        if self.is_open:
            self.close(succeeded=exit_status == 0)
            self.is_open = False

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a second copy of the hyper-parameters could differ from the config."""

    def finalize(self, status: str) -> None:
        """Do nothing: whether the run succeeded is known only when its record is, see ``finish``."""

    @property
    def name(self) -> str:
        """Empty, so that paths Lightning builds from it stay in the folder."""
        return ""

    @property
    def version(self) -> str:
        """The run's id."""
        return self.run_id

    @property
    def save_dir(self) -> str:
        """Where the viewer looks."""
        return str(self.folder)
