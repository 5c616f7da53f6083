"""Trackio: one database of all runs below one folder, shown in a browser by a server of this machine.

trackio is an extra, so it is imported inside the functions; and it reads where its folder is on import.
"""

import contextlib
import io
import logging
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tielab.errors import RequestError, reason_of
from tielab.folder import quoted
from tielab.tracking.local import LocalLogger
from tielab.tracking.wandb import flat_config

if TYPE_CHECKING:
    from trackio.run import Run

log = logging.getLogger(__name__)


class TrackioLogger(LocalLogger):
    """A run in the database ``<save_dir>/trackio/<project>.db``, named and configured as in W&B.

    Never asks the Hugging Face Hub for anything, whatever its variables and tokens say.

    Args:
        group: The sweep.
        config: Resolved and nested; ``tied``, ``vocab_size``, ``width`` and ``seed`` are repeated flat.

    Raises:
        RequestError: trackio takes no project of that name, or this process uses another folder already.
    """

    def __init__(
        self,
        *,
        project: str,
        save_dir: str | Path,
        run_id: str,
        name: str,
        group: str | None,
        job_type: str | None,
        config: dict[str, Any],
        resumed: bool = False,
    ) -> None:
        self.project = project
        self._config = {"job_type": job_type, **config, **flat_config(config)}
        self._num_rows = 0
        self._run: Run | None = None
        super().__init__(Path(save_dir, "trackio"), run_id, group, resumed=resumed)

    def prepare(self) -> None:
        """Import trackio for this folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        os.environ["TRACKIO_DIR"] = str(self.folder.resolve())
        from trackio.utils import TRACKIO_DIR, canonical_project_name

        if self.folder.resolve() != TRACKIO_DIR.resolve():
            raise RequestError(f"trackio keeps to {TRACKIO_DIR} until this process ends; start another one")
        if canonical_project_name(self.project) != self.project:
            raise RequestError(
                f"logger.trackio.project={self.project} is taken by no file: use letters, digits, - and _"
            )
        from trackio.sqlite_storage import SQLiteStorage

        try:
            SQLiteStorage.validate_project_name(self.project)
        except ValueError as error:
            raise RequestError(f"trackio refuses the project: {reason_of(error)}") from None

    def open(self, first_step: int) -> None:
        """Begin the run, or go on with it after its rows before ``first_step``."""
        from trackio.sqlite_storage import SQLiteStorage

        SQLiteStorage.init_db(self.project)
        if self.resumed:
            self._num_rows = keep_rows_before(self.project, self.run_id, first_step)
        self._run = _run_class()(
            url=None,
            project=self.project,
            client=None,
            name=self.run_id,
            run_id=self.run_id,
            group=self.group,
            config=self._config,
        )

    def write(self, row: dict[str, float], step: int) -> None:
        """Queue a row; trackio writes its queue every half second."""
        assert self._run is not None
        self._num_rows += 1
        self._run.log({name: value for name, value in row.items() if name != "step"}, step=step)

    def close(self, *, succeeded: bool) -> None:
        """Write what is queued, mark a failed run with an alert, and say so if rows are missing."""
        from trackio.alerts import AlertLevel
        from trackio.sqlite_storage import SQLiteStorage
        from trackio.utils import get_storage_mode

        assert self._run is not None
        with contextlib.redirect_stdout(io.StringIO()):
            if not succeeded:
                self._run.alert("the run did not finish", level=AlertLevel.ERROR)
            self._run.finish()  # type: ignore[no-untyped-call]
        written = SQLiteStorage.get_log_count(self.project, self.run_id, run_id=self.run_id)
        if written != self._num_rows and get_storage_mode() == "sqlite":
            log.warning(
                "trackio has %d of the %d rows of %s; all are in its metrics.csv",
                written,
                self._num_rows,
                self.run_id,
            )

    def hint(self) -> str:
        """One line: the command that shows the runs of this folder."""
        folder = quoted(self.folder.resolve())
        return f"Trackio: view with `TRACKIO_DIR={folder} trackio show --project {shlex.quote(self.project)}`"


def keep_rows_before(project: str, run_id: str, first_step: int) -> int:
    """Delete a run's rows from a step on, and return how many are left."""
    from trackio.sqlite_storage import SQLiteStorage

    path = SQLiteStorage.get_project_db_path(project)
    with SQLiteStorage._get_process_lock(project), SQLiteStorage._get_connection(path) as connection:
        connection.execute("DELETE FROM metrics WHERE run_id = ? AND step >= ?", (run_id, first_step))
        (number,) = connection.execute("SELECT COUNT(*) FROM metrics WHERE run_id = ?", (run_id,)).fetchone()
    return int(number)


def _run_class() -> "type[Run]":
    from trackio.run import Run

    class LocalRun(Run):
        """trackio.init would follow TRACKIO_SPACE_ID, and a plain Run asks the Hub whose token there is."""

        def _get_username(self) -> None:
            return None

    return LocalRun
