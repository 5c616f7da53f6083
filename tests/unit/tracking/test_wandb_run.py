"""A sweep that trains online: all that it writes here arrives there, and the dashboard finds its keys."""

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest
import yaml
from wandb_started import run_told

import faults
from running import call_main
from tielab import fork_server
from tielab.dashboard import spec
from tielab.record import Record, read_record
from tielab.tracking.wandb import record_summary
from wandb_server import OnlineRun, serve

DUMMY_KEY = "0" * 40
NOT_LOGGED = re.compile(r"_.*|epoch|trainer/global_step")
"""What wandb and Lightning add to each row."""


@dataclass
class Sweep:
    """What two jobs left here and at the server; both were stopped on their way and resumed."""

    statuses: list[int]
    folders: dict[str, Path]
    runs: dict[str, OnlineRun]
    """Of both, by arm."""
    unknown_calls: list[str]

    def record(self, arm: str) -> Record:
        return read_record(self.folders[arm])


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sweep(
    tmp_path_factory: pytest.TempPathFactory, tiny: tuple[str, ...], cache_dir: Path
) -> Iterator[Sweep]:
    folder = tmp_path_factory.mktemp("online")
    command = ["-m", *tiny, "model.tied=true,false", "logger=wandb", "trainer.log_every_n_steps=5"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    with (
        serve() as server,
        pytest.MonkeyPatch.context() as patch,
        mock.patch.dict(os.environ, {**kept, **environment(folder, server.url)}, clear=True),
    ):
        patch.setattr(fork_server, "run_forked", faults.misbehave)
        patch.setenv(faults.FAULTS, json.dumps({"0": "terminate@17"}))
        statuses = [call_main(command, folder, patch)]
        patch.delenv(faults.FAULTS)
        statuses.append(call_main([*command, "resume=true"], folder, patch))
        folders = {path.name: path for path in folder.glob("outputs/sweeps/*/*") if path.is_dir()}
        arms = {"tied" if read_record(path).tied else "untied": path for path in folders.values()}
        runs = {arm: server.runs[read_record(path).run_id] for arm, path in arms.items()}
        yield Sweep(statuses, arms, runs, server.unknown_calls)


def environment(folder: Path, url: str) -> dict[str, str]:
    return {
        "NETRC": str(folder / "netrc"),
        "WANDB_API_KEY": DUMMY_KEY,
        "WANDB_BASE_URL": url,
        "WANDB_CACHE_DIR": str(folder / "cache"),
        "WANDB_CONFIG_DIR": str(folder / "config"),
        "WANDB_DATA_DIR": str(folder / "data"),
        "WANDB_ERROR_REPORTING": "false",
    }


ARMS = pytest.mark.parametrize("arm", ["tied", "untied"])


def test_it_was_interrupted_and_went_on_in_the_same_runs(sweep: Sweep) -> None:
    assert sweep.statuses == [130, 0]
    assert {sweep.record(arm).resumed_at_step for arm in sweep.runs} == {17}
    assert {arm: run.exit_code for arm, run in sweep.runs.items()} == {"tied": 0, "untied": 0}
    assert sweep.unknown_calls == []


@ARMS
def test_every_row_of_the_metrics_file_arrived_in_order(sweep: Sweep, arm: str) -> None:
    table = pd.read_csv(sweep.folders[arm] / "metrics.csv").drop(columns="step")
    written = [row.dropna().to_dict() for _, row in table.iterrows()]
    assert len(written) > 6
    assert rows_of(sweep.runs[arm]) == written


@ARMS
def test_the_config_arrived_with_what_tables_are_grouped_by(sweep: Sweep, arm: str) -> None:
    written = yaml.safe_load((sweep.folders[arm] / "run.yaml").read_text())
    config = sweep.runs[arm].config
    assert (config["arm"], config["phase"], config["tied"]) == (arm, "report", arm == "tied")
    assert config["device"] == sweep.record(arm).device is not None
    for group in ("data", "optimizer", "trainer", "budget", "schedule", "study"):
        assert config[group] == written[group], group


@ARMS
def test_the_sweep_is_the_group_and_the_record_the_summary(sweep: Sweep, arm: str) -> None:
    run, record = sweep.runs[arm], sweep.record(arm)
    assert run.variables["groupName"] == record.sweep == sweep.folders[arm].parent.name
    assert (run.variables["jobType"], run.variables["displayName"]) == (arm, record.run_id)
    expected = json.loads(json.dumps(record_summary(record)))
    assert {key: run.summary[key] for key in expected} == expected


@ARMS
def test_every_key_that_the_dashboard_names_is_one_of_the_run(sweep: Sweep, arm: str) -> None:
    run = sweep.runs[arm]
    known = {"metric": set().union(*run.history), "config": paths(run.config), "summary": paths(run.summary)}
    named = named_keys(spec("me", "tielab", "a-sweep"))
    assert {key for kind, key in named if kind == "config"} == {"arm", "device", "phase"}
    assert ("metric", "val/bits_per_byte") in named
    assert ("summary", "parameters.total") in named
    assert ("summary", "tokens_per_second.mean") in named
    assert {(kind, key) for kind, key in named if key not in known[kind]} == set()


def test_a_run_that_loses_its_server_finishes_and_arrives_later_by_the_command_it_told(
    tmp_path: Path, tiny: tuple[str, ...], cache_dir: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    monkeypatch.setattr(fork_server, "run_forked", faults.misbehave)
    with ExitStack() as lost, mock.patch.dict(os.environ, kept, clear=True):
        server = lost.enter_context(serve())
        os.environ.update(environment(tmp_path, server.url), WANDB_FINISH_TIMEOUT="1")
        monkeypatch.setenv(faults.FAULTS, json.dumps({"0": "hold@17"}))

        def lose() -> None:
            while not (tmp_path / "held").exists():
                time.sleep(0.02)
            lost.close()
            (tmp_path / "released").touch()

        threading.Thread(target=lose, daemon=True).start()
        assert call_main([*tiny, "logger=wandb", "trainer.log_every_n_steps=5"], tmp_path, monkeypatch) == 0
        assert "1 run, all finished" in capfd.readouterr().out
        (folder,) = tmp_path.glob("outputs/runs/*")
        # Not what it printed: a fork server that other tests share writes where the first of them did.
        told = (folder / "run.log").read_text()
        assert told.count("W&B run not closed (") == 1
        with serve() as back:
            run_told(told, back)
            (run,) = back.runs.values()
    written = pd.read_csv(folder / "metrics.csv").drop(columns="step")
    assert rows_of(run) == [row.dropna().to_dict() for _, row in written.iterrows()]
    assert (run.exit_code, run.summary["parameters"]) == (0, read_record(folder).parameters)


def rows_of(run: OnlineRun) -> list[dict[str, Any]]:
    """What the harness logged of a run, without what wandb and Lightning add."""
    return [
        {key: value for key, value in row.items() if not NOT_LOGGED.fullmatch(key)} for row in run.history
    ]


def paths(tree: dict[str, Any]) -> set[str]:
    """Every value's dotted path, and those of the dictionaries."""
    found = set(tree)
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= {f"{key}.{path}" for path in paths(value)}
    return found


def named_keys(view: dict[str, Any]) -> set[tuple[str, str]]:
    """(metric, config or summary; dotted key) of all that panels, columns, filters and grouping name.

    ``Run History Line Plot`` names metrics of the history, ``Bar Chart`` those of the summary.
    """
    section = view["spec"]["section"]
    found = {("metric", section["settings"]["xAxis"])}
    for panel in (panel for part in section["panelBankConfig"]["sections"] for panel in part["panels"]):
        config, kind = panel["config"], panel["viewType"]
        assert kind in ("Run History Line Plot", "Bar Chart", "Scatter Plot", "Run Comparer"), kind
        names = [config.get("xAxis"), config.get("yAxis"), config.get("groupBy"), *config.get("metrics", [])]
        plain = "metric" if kind == "Run History Line Plot" else "summary"
        found |= {key_of(name, plain) for name in names if name is not None}
    (runs,) = section["runSets"]
    addressed = [*runs["grouping"], *(k["key"] for k in runs["sort"]["keys"])]
    addressed += [entry["key"] for entry in runs["filters"]["filters"]]
    found |= {key_of(f"{key['section']}:{key['name']}", "run") for key in addressed}
    found |= {key_of(column, "run") for column in runs["runFeed"]["columnOrder"]}
    return {(kind, key) for kind, key in found if kind != "run"}


def key_of(name: str, plain: str) -> tuple[str, str]:
    kind, separator, key = name.partition(":")
    if not separator:
        return plain, name
    return kind, key.removesuffix(".value") if kind == "config" else key
