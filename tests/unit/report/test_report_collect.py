from collections.abc import Callable
from pathlib import Path

import pytest

from report_records import make_record
from tielab.errors import RequestError
from tielab.record import RECORD_NAME
from tielab.report.collect import collect_runs

WriteRun = Callable[..., Path]


def test_a_run_and_a_sweep_are_found_by_start_time(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("sweep/0", make_record(seed=2))
    write_run("sweep/deep/1", make_record(seed=1))
    single = write_run("single", make_record(seed=0))
    runs, unreadable = collect_runs([tmp_path / "sweep", single])
    assert [run.record.seed for run in runs] == [0, 1, 2]
    assert [run.folder for run in runs] == [single, tmp_path / "sweep/deep/1", tmp_path / "sweep/0"]
    assert unreadable == []


def test_each_run_comes_once_whatever_leads_to_it(tmp_path: Path, write_run: WriteRun) -> None:
    run = write_run("sweep/run", make_record())
    (tmp_path / "sweep/a_link").symlink_to(run)
    (run / "up").symlink_to(tmp_path / "sweep")
    runs, _ = collect_runs([tmp_path / "sweep", run, tmp_path / "sweep/a_link"])
    assert [found.folder for found in runs] == [run]


def test_a_link_to_a_run_elsewhere_is_followed(tmp_path: Path, write_run: WriteRun) -> None:
    run = write_run("elsewhere/run", make_record())
    (tmp_path / "study").mkdir()
    (tmp_path / "study/run").symlink_to(run)
    assert len(collect_runs([tmp_path / "study"]).runs) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "schema_version None"),
        ('{"schema_version": 99}', "schema_version 99"),
        ('{"schema_version": 1}', "not a record"),
        (
            '{"schema_version": 1, "run_id": "x", "status": "finished", "config": 3, "config_hash": "", '
            '"tied": true, "seed": 0}',
            "config=3",
        ),
        (
            '{"schema_version": 1, "run_id": "x", "status": "lost", "config": {}, "config_hash": "", '
            '"tied": true, "seed": 0}',
            "status='lost'",
        ),
    ],
)
def test_a_foreign_record_is_listed_with_its_reason(
    tmp_path: Path, write_run: WriteRun, text: str, reason: str
) -> None:
    write_run("good", make_record())
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / RECORD_NAME).write_text(text)
    runs, unreadable = collect_runs([tmp_path])
    assert len(runs) == 1
    assert [run.folder for run in unreadable] == [tmp_path / "bad"]
    assert reason in unreadable[0].reason


def test_a_record_that_is_a_folder_is_unreadable(tmp_path: Path, write_run: WriteRun) -> None:
    write_run("good", make_record())
    (tmp_path / "bad" / RECORD_NAME).mkdir(parents=True)
    assert len(collect_runs([tmp_path]).unreadable) == 1


def test_a_missing_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="nowhere: no such folder"):
        collect_runs([tmp_path / "nowhere"])


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no run there"):
        collect_runs([tmp_path])


def test_nothing_but_unreadable_records_is_refused_with_the_first_reason(tmp_path: Path) -> None:
    (tmp_path / RECORD_NAME).write_text("{")
    with pytest.raises(RequestError, match=r"1 found, none readable; first: .* is not JSON"):
        collect_runs([tmp_path])
