"""Trackio: what its own interface finds in the database, which is one per process."""

import json
import logging
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from lightning.fabric.utilities.rank_zero import rank_zero_only
from test_tensorboard import CONFIG, TOKENS_PER_STEP

from tielab.errors import RequestError
from tielab.tracking.trackio import TrackioLogger


@pytest.fixture
def start(viewed_sweep: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A logger in a project of this test's own, beside the sweep's."""
    project = "".join(c for c in request.node.name if c.isalnum())[:60]

    def begin(**more: Any) -> TrackioLogger:
        arguments: dict[str, Any] = {
            "project": project, "save_dir": viewed_sweep / "outputs", "run_id": "run-1", "name": "run-1",
            "group": "sweep-7", "job_type": "untied", "config": CONFIG,
        }  # fmt: skip
        return TrackioLogger(**arguments | more)

    return begin


def log_steps(logger: TrackioLogger, steps: range) -> None:
    for step in steps:
        logger.log_metrics({"train/loss": 1 / step, "tokens": step * TOKENS_PER_STEP}, step)


def rows(logger: TrackioLogger) -> list[dict[str, Any]]:
    from trackio.sqlite_storage import SQLiteStorage

    return SQLiteStorage.get_logs(logger.project, logger.run_id, run_id=logger.run_id)


def test_the_rows_of_a_sweep_are_those_of_its_metrics_files(viewed_sweep: Path, start: Any) -> None:
    start(project="tielab")  # trackio reads where its files are when it is imported
    from trackio import Api

    (sweep,) = (viewed_sweep / "outputs/sweeps").iterdir()
    runs = {run.name: run for run in Api().runs("tielab")}
    assert len(runs) == 2
    for job, tied in (("0", True), ("1", False)):
        record = json.loads((sweep / job / "record.json").read_text())
        run = runs[record["run_id"]]
        assert run.id == record["run_id"]
        assert (run.config["_Group"], run.config["job_type"]) == (sweep.name, "tied" if tied else "untied")
        assert (run.config["tied"], run.config["vocab_size"], run.config["width"]) == (tied, 64, 32)
        assert run.config["optimizer"] == record["config"]["optimizer"]
        metrics = pd.read_csv(sweep / job / "metrics.csv")
        expected = [
            {name: value for name, value in row.items() if not math.isnan(value)}
            for row in metrics.to_dict("records")
        ]
        found = rows(start(project="tielab", run_id=record["run_id"], resumed=True))
        assert [{k: v for k, v in row.items() if k != "timestamp"} for row in found] == expected


def test_a_run_that_goes_on_repeats_no_row_and_touches_no_other_run(start: Any) -> None:
    """Killed after step 6, resumed from the checkpoint of step 4."""
    other, killed = start(run_id="run-2"), start()
    for logger in (other, killed):
        log_steps(logger, range(1, 7))
        logger.finish(1)
    resumed = start(resumed=True)
    log_steps(resumed, range(5, 9))
    resumed.finish(0)
    assert [row["step"] for row in rows(resumed)] == list(range(1, 9))
    assert [row["step"] for row in rows(other)] == list(range(1, 7))


def test_a_failed_run_has_an_alert(start: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    for run_id, status in (("good", 0), ("bad", 1)):
        logger = start(run_id=run_id)
        log_steps(logger, range(1, 3))
        logger.finish(status)
    found = SQLiteStorage.get_alerts(logger.project)
    assert [(alert["run"], alert["level"]) for alert in found] == [("bad", "error")]
    assert capsys.readouterr().out == ""


def test_lost_rows_are_told(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    """trackio only warns in passing if its database refuses a row."""
    from trackio.sqlite_storage import SQLiteStorage

    logger = start()
    log_steps(logger, range(1, 4))
    logger.finish(0)
    assert not caplog.records
    resumed = start(resumed=True)
    log_steps(resumed, range(4, 5))
    path = SQLiteStorage.get_project_db_path(logger.project)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON metrics BEGIN SELECT RAISE(FAIL, 'full'); END"
        )
    log_steps(resumed, range(5, 6))
    with caplog.at_level(logging.WARNING, "tielab"), pytest.warns(UserWarning, match="full"):
        resumed.finish(0)
    assert "of the 5 rows of run-1; all are in its metrics.csv" in caplog.text


def test_nobody_is_asked_and_nothing_is_sent_whatever_the_environment_says(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    asked: list[Any] = []
    monkeypatch.setenv("HF_TOKEN", "hf_" + "a" * 34)
    monkeypatch.setenv("TRACKIO_SPACE_ID", "somebody/space")
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://127.0.0.1:9/?write_token=t")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: asked.append(a))
    monkeypatch.setattr(socket.socket, "connect", lambda *a: asked.append(a))
    logger = start()
    log_steps(logger, range(1, 3))
    logger.finish(0)
    assert asked == []
    assert len(rows(logger)) == 2


def test_other_ranks_write_nothing(start: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = start(save_dir=tmp_path)
    log_steps(logger, range(1, 3))
    logger.finish(0)
    assert list(tmp_path.iterdir()) == []


def test_another_folder_in_the_same_process_is_refused(start: Any, tmp_path: Path) -> None:
    start()
    with pytest.raises(
        RequestError, match=r"^trackio keeps to .* until this process ends; start another one$"
    ):
        start(save_dir=tmp_path)


@pytest.mark.parametrize("project", ["a/b", "..", "", "registry-x", "my_system"])
def test_a_project_that_is_no_file_is_refused(start: Any, project: str) -> None:
    with pytest.raises(RequestError, match=r"^(logger\.trackio\.project=|trackio refuses the project: )"):
        start(project=project)
