"""W&B: what is really in the offline file or arrives at a server, and what every mode does."""

import json
import logging
import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
import wandb
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers.logger import DummyExperiment
from one_parameter import MetricOfAUser, fit
from wandb_started import CONFIG, DUMMY_KEY, own_warnings, start

from tielab.diagnostics.columns import DIAGNOSTIC_COLUMNS
from tielab.errors import RequestError
from tielab.record import Record
from tielab.tracking.metrics_csv import METRIC_COLUMNS, MetricsCsv
from tielab.tracking.wandb import finish_wandb, note_device, offline_hint, record_summary
from wandb_offline import OfflineRun, read_offline_run, run_files
from wandb_server import Trouble, serve

pytestmark = pytest.mark.usefixtures("wandb_environment")


def read_only_run(save_dir: Path) -> OfflineRun:
    (path,) = run_files(save_dir)
    return read_offline_run(path)


class TestOfflineRun:
    """One training, seen through the file it left."""

    made: ClassVar[list[OfflineRun]] = []
    """By the first test, for all."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> OfflineRun:
        if not self.made:
            logger = start(tmp_path)
            note_device(logger, "cpu: a")
            fit([MetricsCsv(tmp_path), logger], 4, callbacks=[MetricOfAUser()])
            finish_wandb(logger, 0, {"parameters": {"total": 7}, "peak_memory_bytes": 9})
            self.made.append(read_only_run(tmp_path))
        return self.made[0]

    def test_who_it_is(self, run: OfflineRun) -> None:
        assert (run.run_id, run.name, run.project) == ("run-1", "untied-128-s3", "tielab")
        assert (run.group, run.job_type, run.tags) == ("sweep-7", "untied", ["smoke", "128"])

    def test_config_holds_each_value_once_nested_and_the_flat_ones(self, run: OfflineRun) -> None:
        """The module saved its own hyper-parameters; they must not turn up as a second copy."""
        flat = {"tied": False, "vocab_size": 4096, "width": 128, "seed": 3}
        flat |= {"arm": "untied", "phase": "report", "device": "cpu: a"}
        assert run.config == CONFIG | flat

    def test_every_row_carries_tokens(self, run: OfflineRun) -> None:
        losses = [row["train/loss"] for row in run.history if "train/loss" in row]
        assert len(losses) == 4
        assert len([row for row in run.history if "val/loss" in row]) == 2
        assert [row["tokens"] for row in run.history if "train/loss" in row] == [8, 16, 24, 32]
        assert all("tokens" in row for row in run.history)
        assert [row["my/metric"] for row in run.history if "my/metric" in row] == [2, 3]

    def test_metrics_are_defined_by_exact_name_over_tokens(self, run: OfflineRun) -> None:
        drawn = {name for name, metric in run.metrics.items() if metric.step_metric == "tokens"}
        assert drawn == (METRIC_COLUMNS.keys() | DIAGNOSTIC_COLUMNS.keys()) - {"step", "tokens"}
        for name in ("train/loss", "val/loss", "val/perplexity", "val/word_perplexity", "val/bits_per_byte"):
            assert run.metrics[name].summary == {"min", "last"}
        assert run.metrics["tokens_per_second"].summary == {"mean", "last"}
        assert [name for name in run.metrics if "*" in name] == ["*"]

    def test_summary_has_the_curve_and_the_record(self, run: OfflineRun) -> None:
        losses = [row["train/loss"] for row in run.history if "train/loss" in row]
        assert run.summary["train/loss"] == {"min": min(losses), "last": losses[-1]}
        assert run.summary["parameters"] == {"total": 7}
        assert run.summary["peak_memory_bytes"] == 9

    def test_it_finished_and_uploads_no_checkpoint(self, run: OfflineRun) -> None:
        assert run.exit_code == 0
        assert run.artifacts == []


@pytest.mark.parametrize("exit_code", [1, 130])
def test_a_failed_run_is_marked_failed(tmp_path: Path, exit_code: int) -> None:
    finish_wandb(start(tmp_path), exit_code)
    assert read_only_run(tmp_path).exit_code == exit_code


def test_two_runs_in_one_process_do_not_mix_even_if_the_first_was_left_open(tmp_path: Path) -> None:
    start(tmp_path, "first", job_type="tied").log_metrics({"train/loss": 1.0}, 0)
    second = start(tmp_path, "second")
    second.log_metrics({"train/loss": 2.0}, 0)
    finish_wandb(second, 0)
    runs = {run.run_id: run for run in map(read_offline_run, run_files(tmp_path))}
    assert {key: [row["train/loss"] for row in run.history] for key, run in runs.items()} == {
        "first": [1.0],
        "second": [2.0],
    }
    assert (runs["first"].job_type, runs["second"].job_type) == ("tied", "untied")
    assert (runs["first"].exit_code, runs["second"].exit_code) == (1, 0)


def test_a_resumed_run_keeps_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    finish_wandb(start(tmp_path), 1)
    time.sleep(1.1)  # offline folders are named by the second
    finish_wandb(start(tmp_path, resumed=True), 0)
    assert [read_offline_run(path).run_id for path in run_files(tmp_path)] == ["run-1", "run-1"]
    hint = offline_hint(tmp_path, "run-1")
    assert hint.count("wandb/offline-run-") == 2


def test_offline_hint_names_the_folder_as_one_would_type_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_dir = tmp_path / "my runs"
    folder = save_dir / "wandb/offline-run-20260101_000000-run-1"
    folder.mkdir(parents=True)
    (save_dir / "wandb/offline-run-20260101_000000-other").mkdir()
    monkeypatch.chdir(tmp_path)
    assert offline_hint("my runs", "run-1") == (
        "W&B offline: upload with `wandb sync 'my runs/wandb/offline-run-20260101_000000-run-1'`; "
        "view with `wandb leet 'my runs/wandb'`"
    )
    monkeypatch.chdir(folder.parent)
    assert f"`wandb sync {folder.name}`; view with `wandb leet .`" in offline_hint(save_dir, "run-1")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert f"`wandb sync '{folder}'`" in offline_hint(save_dir, "run-1")
    assert offline_hint(save_dir, "absent").startswith("W&B: no offline run absent")


def test_the_file_is_flushed_every_second(tmp_path: Path) -> None:
    """An unstable setting of wandb: if its name goes, a killed run loses 15 s of rows."""
    logger = start(tmp_path)
    assert logger.experiment.settings.x_transaction_log_flush_interval == 1
    assert logger.experiment.settings.init_timeout == 20
    assert logger.experiment.settings.finish_timeout == 120
    logger.log_metrics({"train/loss": 1.0}, 0)
    deadline = time.monotonic() + 10
    while not read_only_run(tmp_path).history and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(read_only_run(tmp_path).history) == 1
    assert read_only_run(tmp_path).exit_code is None


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK"])
def test_other_ranks_never_make_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    logger = start(tmp_path / "out", mode="online")
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger.log_metrics({"train/loss": 1.0}, 0)
    assert isinstance(logger.experiment, DummyExperiment)
    finish_wandb(logger, 0, {"tokens_seen": 1})
    assert wandb.run is None
    assert not (tmp_path / "out").exists()


def test_finishing_nothing_is_nothing() -> None:
    finish_wandb(None, 1, {"tokens_seen": 1})


def test_the_record_goes_to_the_summary_without_blanks(tmp_path: Path) -> None:
    record = Record("run-1", "finished", CONFIG, "0" * 16, tied=False, seed=3, tokens_seen=32)
    record.parameters = {"total": 7, "head": 3}
    record.tie_observed = False
    assert record_summary(record) == {
        "parameters": {"total": 7, "head": 3},
        "tokens_seen": 32,
        "tie_observed": False,
    }


class TestMode:
    def test_offline_prints_nothing(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        wandb.termsetup(wandb.Settings(silent=False), None)  # as in a process that has just begun
        finish_wandb(start(tmp_path), 0)
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("empty", [{}, {"WANDB_MODE": ""}, {"WANDB_MODE": "auto"}])
    def test_auto_without_a_key_is_offline_and_stays_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: dict[str, str]
    ) -> None:
        for name, value in empty.items():
            monkeypatch.setenv(name, value)
        finish_wandb(start(tmp_path, mode="auto"), 0)
        assert read_only_run(tmp_path).exit_code == 0
        assert os.environ["WANDB_MODE"] == "offline"
        assert os.environ["WANDB_ERROR_REPORTING"] == "false"

    @pytest.mark.parametrize("value", ["disabled", "offline", "dryrun"])
    def test_auto_follows_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
    ) -> None:
        monkeypatch.setenv("WANDB_MODE", value)
        monkeypatch.setenv("WANDB_API_KEY", DUMMY_KEY)
        logger = start(tmp_path, mode="auto")
        logger.log_metrics({"train/loss": 1.0}, 0)
        finish_wandb(logger, 0, {"tokens_seen": 1})
        assert len(run_files(tmp_path)) == (value != "disabled")

    @pytest.mark.parametrize("mode", ["auto", "online"])
    def test_a_malformed_key_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        monkeypatch.setenv("WANDB_API_KEY", "too-short")
        with pytest.raises(RequestError, match=r"^the configured W&B key is not one: .*40\+ characters.*$"):
            start(tmp_path, mode=mode)

    def test_online_needs_a_key(self, tmp_path: Path) -> None:
        with pytest.raises(RequestError, match=r"^W&B mode online needs a key: run `wandb login`.*$"):
            start(tmp_path, mode="online")

    def test_an_unknown_mode_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(RequestError, match="W&B mode onlin is not one of auto, online"):
            start(tmp_path, mode="onlin")

    @pytest.mark.parametrize("refused", [{"project": "a/b"}, {"tags": ["t" * 65]}, {"run_id": "a/b"}])
    def test_what_wandb_refuses_is_one_line(self, tmp_path: Path, refused: dict[str, Any]) -> None:
        with pytest.raises(RequestError, match=r"^W&B refuses the run: .+$"):
            start(tmp_path, **refused)

    def test_online_without_a_server_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WANDB_API_KEY", DUMMY_KEY)
        monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")
        with pytest.raises(RequestError, match=r"^W&B online is impossible: .*refused; or use mode offline$"):
            start(tmp_path, mode="online")

    @pytest.mark.parametrize(
        ("mode", "environment", "num_runs"), [("offline", "disabled", 1), ("disabled", "offline", 0)]
    )
    def test_a_mode_of_the_config_wins_over_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, environment: str, num_runs: int
    ) -> None:
        monkeypatch.setenv("WANDB_MODE", environment)
        finish_wandb(start(tmp_path, mode=mode), 0)
        assert len(run_files(tmp_path)) == num_runs

    @pytest.mark.parametrize("variables", [{}, {"WANDB_MODE": "offline"}], ids=["auto", "asked for"])
    def test_offline_says_nothing_to_a_server_that_is_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
    ) -> None:
        if variables:
            monkeypatch.setenv("WANDB_API_KEY", DUMMY_KEY)
        with serve() as server:
            for name, value in {**variables, "WANDB_BASE_URL": server.url}.items():
                monkeypatch.setenv(name, value)
            finish_wandb(start(tmp_path, mode="auto"), 0)
            assert server.calls == []
        assert read_only_run(tmp_path).exit_code == 0

    @pytest.mark.parametrize(
        ("mode", "trouble"),
        [
            ("online", Trouble(silent=True)),
            ("auto", Trouble(silent=True)),
            ("auto", Trouble(delay=5)),
            ("auto", Trouble(status=500)),
        ],
        ids=["online, silent", "silent", "slow", "errors"],
    )
    def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_the_timeout(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, trouble: Trouble
    ) -> None:
        monkeypatch.setenv("WANDB_API_KEY", DUMMY_KEY)
        monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")
        with serve() as server:
            server.trouble = trouble
            monkeypatch.setenv("WANDB_BASE_URL", server.url)
            if mode == "online":
                with pytest.raises(
                    RequestError, match=r"^W&B online is impossible: .*; or use mode offline$"
                ):
                    start(tmp_path, mode=mode)
                return
            finish_wandb(start(tmp_path, mode=mode), 0)
        assert read_only_run(tmp_path).exit_code == 0

    def test_auto_without_a_server_goes_on_offline(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("WANDB_API_KEY", DUMMY_KEY)
        monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")
        with caplog.at_level(logging.WARNING, "tielab"):
            logger = start(tmp_path, mode="auto")
        logger.log_metrics({"train/loss": 1.0}, 0)
        finish_wandb(logger, 0)
        (warning,) = own_warnings(caplog)
        assert warning.startswith("W&B did not start online (")
        assert "\n" not in warning
        assert [row["train/loss"] for row in read_only_run(tmp_path).history] == [1.0]


def test_the_reader_agrees_with_the_one_of_wandb(tmp_path: Path) -> None:
    """Rows enough for several blocks of the log, so that records are split."""
    logger = start(tmp_path)
    for step in range(200):
        logger.log_metrics({"train/loss": 1 / (step + 1), "tokens": step}, step)
    finish_wandb(logger, 3, {"parameters": {"total": 7}})
    (path,) = run_files(tmp_path)
    assert path.stat().st_size > 2 * 32 * 1024
    command = [wandb.util.get_core_path(), "leet", "inspect", "--json", "--no-observability"]
    shown = subprocess.run([*command, "--run-file", str(path)], capture_output=True, check=True, timeout=30)
    records = [json.loads(line) for line in shown.stdout.splitlines()]
    by_type = {record["type"]: record[record["type"]] for record in records}
    ours = read_offline_run(path)
    theirs = by_type["run"]
    assert (ours.run_id, ours.group, ours.job_type, ours.tags) == (
        theirs["run_id"], theirs["run_group"], theirs["job_type"], theirs["tags"]
    )  # fmt: skip
    nested = {key: value for key, value in theirs["config"]["update"].items() if key != "_wandb"}
    assert ours.config == nested
    assert ours.exit_code == by_type["exit"]["exit_code"] == 3
    assert len(ours.history) == sum(record["type"] == "history" for record in records) == 200


CHILD = """
import json, sys, time
from tielab.tracking.wandb import finish_wandb, wandb_logger

def run(run_id):
    logger = wandb_logger(**json.loads(sys.argv[1]), run_id=run_id)
    for step in range(5):
        logger.log_metrics({"train/loss": 1.0 / (step + 1), "tokens": step}, step)
    return logger

finish_wandb(run("finished"), 0)
run("killed")
print("logged", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_fresh_process_without_a_key_does_not_ask_and_a_killed_run_keeps_its_rows(
    tmp_path: Path, wandb_environment: dict[str, str]
) -> None:
    """On a terminal wandb itself would ask for a key, and wait for it without limit, or after
    WANDB_LOGIN_TIMEOUT switch itself off."""
    arguments = {
        "project": "tielab", "entity": None, "mode": "auto", "save_dir": str(tmp_path), "tags": [],
        "name": "a run", "group": "g", "job_type": "tied", "config": CONFIG,
    }  # fmt: skip
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps(arguments)],
        stdin=inside, stdout=subprocess.PIPE, stderr=inside,
        env=wandb_environment | {"WANDB_LOGIN_TIMEOUT": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"logged\n"
        time.sleep(2.5)  # two flushes
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(inside)
        os.close(terminal)
    finished, killed = map(read_offline_run, run_files(tmp_path))
    assert (finished.run_id, len(finished.history), finished.exit_code) == ("finished", 5, 0)
    assert (killed.run_id, len(killed.history), killed.exit_code) == ("killed", 5, None)
