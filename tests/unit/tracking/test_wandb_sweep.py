"""sweep.yaml: what ``wandb agent`` makes of it, and that the runs arrive as those of the sweep."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from wandb.sdk.launch.sweeps.utils import create_sweep_command_args
from wandb_sweeps_server import serve_sweeps

from running import ROOT, config_of
from tielab.checks import check_config
from tielab.config import computed
from tielab.tracking.metrics_csv import METRIC_COLUMNS

SWEEP = ROOT / "sweep.yaml"


def read_sweep() -> dict[str, Any]:
    return dict(yaml.safe_load(SWEEP.read_text(encoding="utf-8")))


def test_every_value_makes_a_command_that_train_py_takes() -> None:
    """Each job has another value of each parameter; 18 compositions would find no more."""
    sweep = read_sweep()
    values = {name: parameter["values"] for name, parameter in sweep["parameters"].items()}
    assert set(values) <= computed(config_of()).keys()
    fixed = [word for word in sweep["command"] if not word.startswith("${")]
    for number in range(max(map(len, values.values()))):
        job = {name: given[number % len(given)] for name, given in values.items()}
        command = {"args": {name: {"value": value} for name, value in job.items()}}
        config = config_of(*create_sweep_command_args(command)["args_no_hyphens"], *fixed)
        check_config(config)
        assert {name: computed(config)[name] for name in job} == job
    assert (ROOT / sweep["program"]).is_file()


def test_the_metric_is_one_that_every_run_logs_as_it_is_called() -> None:
    """Its summary is a dict of min and last, which W&B does not search: it takes the history's values."""
    assert read_sweep()["metric"] == {"name": "val/bits_per_byte", "goal": "minimize"}
    assert "val/bits_per_byte" in METRIC_COLUMNS


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_agent_runs_both_arms(tiny: tuple[str, ...], tmp_path: Path) -> None:
    sweep = read_sweep()
    sweep["program"] = str(ROOT / "train.py")
    sweep["parameters"] = {"model.tied": {"values": [True, False]}, "seed": {"values": [5]}}
    # TINY has no logger; later words win.
    sweep["command"] = [*sweep["command"][:-1], *tiny, "logger=wandb", sweep["command"][-1], "launch=inline"]
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    with serve_sweeps() as (server, sweeps):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")} | {
            "WANDB_BASE_URL": server.url,
            "WANDB_API_KEY": "0" * 40,
            "WANDB_ERROR_REPORTING": "false",
            "NETRC": str(tmp_path / "netrc"),
            **{f"WANDB_{kind}_DIR": str(tmp_path / kind) for kind in ("CACHE", "CONFIG", "DATA")},
        }
        for command in ("wandb sweep sweep.yaml", "wandb agent local/tielab/sweep0"):
            done = subprocess.run(
                command.split(), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
            )
            assert done.returncode == 0, done.stderr
        assert server.unknown_calls == []
    assert sweeps.sweeps["sweep0"].jobs.keys() == server.runs.keys() == {"job0", "job1"}
    for run_id, tied in (("job0", True), ("job1", False)):
        run = server.runs[run_id]
        assert (run.variables["sweep"], run.variables["groupName"]) == ("sweep0", "sweep0")
        assert (run.variables["project"], run.variables["jobType"]) == (
            "tielab",
            "tied" if tied else "untied",
        )
        assert run.exit_code == 0
        assert (run.config["model"]["tied"], run.config["tied"], run.config["seed"]) == (tied, tied, 5)
        values = [row["val/bits_per_byte"] for row in run.history if "val/bits_per_byte" in row]
        assert len(values) == 2
        assert run.summary["val/bits_per_byte"] == {"min": min(values), "last": values[-1]}
    records = [json.loads(path.read_text()) for path in tmp_path.glob("outputs/runs/*/record.json")]
    assert sorted(record["tied"] for record in records) == [False, True]
