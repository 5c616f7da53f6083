"""W&B with a server: what arrives, what a bad server costs, and how what it missed gets there later."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import wandb
from one_parameter import fit
from wandb_started import CONFIG, DUMMY_KEY, own_warnings, run_told, start

from tielab.errors import RequestError
from tielab.tracking.wandb import finish_wandb, offline_hint, sync_command
from wandb_offline import read_offline_run, run_files
from wandb_server import StandIn, Trouble, serve

NUM_ROWS = 6


@pytest.fixture(autouse=True)
def _key(wandb_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", DUMMY_KEY)


@pytest.fixture
def server(_key: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with serve() as stand_in:
        monkeypatch.setenv("WANDB_BASE_URL", stand_in.url)
        yield stand_in
        wandb.teardown()
    assert stand_in.unknown_calls == []


def log_rows(logger: object, first: int, end: int) -> None:
    for step in range(first, end):
        logger.log_metrics({"train/loss": 1 / (step + 1), "tokens": step}, step)  # type: ignore[attr-defined]


def test_everything_arrives_and_a_resumed_run_goes_on(tmp_path: Path, server: StandIn) -> None:
    logger = start(tmp_path, mode="auto")
    fit([logger], 2)
    finish_wandb(logger, 1, {"parameters": {"total": 7}})
    run = server.runs["run-1"]
    assert run.exit_code == 1
    assert (run.variables["groupName"], run.variables["jobType"]) == ("sweep-7", "untied")
    assert run.config["model"] == CONFIG["model"]
    assert (run.config["tied"], run.config["width"]) == (False, 128)
    assert [row["tokens"] for row in run.history if "train/loss" in row] == [8, 16]
    assert run.summary["parameters"] == {"total": 7}

    with pytest.raises(RequestError, match=r"^W&B refuses the run: Run \(run-1\) already exists"):
        start(tmp_path, mode="auto")
    resumed = start(tmp_path, mode="auto", resumed=True)
    resumed.log_metrics({"train/loss": 0.5, "tokens": 24}, 2)
    finish_wandb(resumed, 0)
    assert run.history[-1]["tokens"] == 24
    assert [row["_step"] for row in run.history] == list(range(len(run.history)))
    assert run.exit_code == 0


def test_an_offline_run_arrives_complete_by_the_command_it_told(tmp_path: Path, server: StandIn) -> None:
    logger = start(tmp_path, mode="offline")
    log_rows(logger, 0, NUM_ROWS)
    finish_wandb(logger, 0, {"parameters": {"total": 7}})
    assert server.calls == []
    run_told(offline_hint(tmp_path, "run-1"), server)
    (path,) = run_files(tmp_path)
    kept, run = read_offline_run(path), server.runs["run-1"]
    assert [row["tokens"] for row in run.history] == list(range(NUM_ROWS))
    assert [row["train/loss"] for row in run.history] == [row["train/loss"] for row in kept.history]
    assert run.config == kept.config
    assert {key: run.summary[key] for key in ("train/loss", "parameters")} == {
        key: kept.summary[key] for key in ("train/loss", "parameters")
    }
    assert (run.variables["groupName"], run.variables["displayName"]) == (kept.group, kept.name)
    assert run.exit_code == 0


TROUBLES = {
    "gone": None,
    "silent": Trouble(silent=True),
    "slow": Trouble(delay=5),
    "drops": Trouble(dropped=True),
    "errors": Trouble(status=500),
    "refuses": Trouble(status=403),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_server_lost_on_the_way_delays_by_the_timeout_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setenv("WANDB_FINISH_TIMEOUT", "1")
    with ExitStack() as lost:
        server = lost.enter_context(serve())
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        logger = start(tmp_path, mode="online")
        log_rows(logger, 0, 2)
        if name == "gone":
            lost.close()
        server.trouble = TROUBLES[name]
        log_rows(logger, 2, NUM_ROWS)
        with caplog.at_level(logging.WARNING, "tielab"):
            finish_wandb(logger, 0, {"parameters": {"total": 7}})
    (warning,) = own_warnings(caplog)
    assert "\n" not in warning
    (path,) = tmp_path.glob("wandb/run-*/run-*.wandb")
    assert [row["tokens"] for row in read_offline_run(path).history] == list(range(NUM_ROWS))
    if name not in ("gone", "refuses"):
        return  # what lies on the disk is the same, and a `wandb sync` takes seconds
    with serve() as back:
        run_told(warning, back)
        run = back.runs["run-1"]
        assert [row["tokens"] for row in run.history] == list(range(NUM_ROWS))
        assert run.summary["parameters"] == {"total": 7}
        assert (run.exit_code, back.unknown_calls) == (0, [])


def test_a_server_that_comes_back_gets_what_it_missed(
    tmp_path: Path, server: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    logger = start(tmp_path, mode="online")
    server.trouble = Trouble(status=500)
    log_rows(logger, 0, NUM_ROWS)
    server.trouble = None
    with caplog.at_level(logging.WARNING, "tielab"):
        finish_wandb(logger, 0)
    assert own_warnings(caplog) == []
    assert [row["tokens"] for row in server.runs["run-1"].history] == list(range(NUM_ROWS))


def test_a_run_that_lost_its_server_and_went_on_online_is_whole_after_a_sync_of_all_its_tries(
    tmp_path: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_FINISH_TIMEOUT", "1")
    logger = start(tmp_path, mode="online")
    server.trouble = Trouble(status=500)
    log_rows(logger, 0, 3)
    finish_wandb(logger, 1)
    server.trouble = None
    resumed = start(tmp_path, mode="online", resumed=True)
    log_rows(resumed, 3, NUM_ROWS)
    finish_wandb(resumed, 0)
    run = server.runs["run-1"]
    assert [row["tokens"] for row in run.history] == list(range(3, NUM_ROWS))
    tries = sorted(tmp_path.glob("wandb/run-*-run-1"))
    assert len(tries) == 2
    run_told(f"`{sync_command(tries)}`", server)
    assert [row["tokens"] for row in run.history] == list(range(NUM_ROWS))
    assert run.exit_code == 0
