"""TensorBoard: what its own reader finds in the event files."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from lightning.fabric.utilities.rank_zero import rank_zero_only
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

from running import config_of
from tielab.build import build
from tielab.checks import check_config
from tielab.config import follow_links
from tielab.errors import RequestError
from tielab.tracking.tensorboard import HPARAM_METRICS, TensorBoardLogger

CONFIG = {
    "model": {"tied": False, "vocab_size": 64, "embed_dim": 32},
    "data": {"batch_size": 8, "block_size": 16},
    "optimizer": {"learning_rate": 0.003},
    "study": {"phase": None},
    "seed": 3,
}
TOKENS_PER_STEP = 8 * 16


def start(save_dir: Path, run_id: str = "run-1", **more: Any) -> TensorBoardLogger:
    arguments: dict[str, Any] = {
        "save_dir": save_dir, "run_id": run_id, "name": run_id, "group": None, "job_type": "untied",
        "config": CONFIG,
    }  # fmt: skip
    return TensorBoardLogger(**arguments | more)


def log_steps(logger: TensorBoardLogger, steps: range) -> None:
    for step in steps:
        logger.log_metrics({"train/loss": 1 / step, "tokens": step * TOKENS_PER_STEP}, step)


def events(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder)).Reload()


def curve(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events(folder).Scalars(name)]


def hparams(folder: Path, tag: str) -> plugin_data_pb2.HParamsPluginData:
    content = events(folder).PluginTagToContent(metadata.PLUGIN_NAME)[tag]
    return plugin_data_pb2.HParamsPluginData.FromString(content)


def test_the_curves_of_a_sweep_are_those_of_its_metrics_files_over_tokens(viewed_sweep: Path) -> None:
    (sweep,) = (viewed_sweep / "outputs/sweeps").iterdir()
    for job in ("0", "1"):
        run_id = json.loads((sweep / job / "record.json").read_text())["run_id"]
        metrics = pd.read_csv(sweep / job / "metrics.csv")
        found = events(viewed_sweep / "outputs/tensorboard" / sweep.name / run_id)
        names = [name for name in metrics if name not in ("step", "tokens") and metrics[name].notna().any()]
        assert sorted(found.Tags()["scalars"]) == sorted(names)
        for name in names:
            rows = metrics[metrics[name].notna()]
            assert [event.step for event in found.Scalars(name)] == rows["tokens"].tolist()
            values = [event.value for event in found.Scalars(name)]
            assert values == pytest.approx(rows[name].tolist(), rel=1e-6)


def test_the_hparams_tab_has_the_arm_and_the_last_values(viewed_sweep: Path) -> None:
    arms = {}
    for folder in sorted(viewed_sweep.glob("outputs/tensorboard/*/*")):
        values = hparams(folder, metadata.SESSION_START_INFO_TAG).session_start_info.hparams
        arms[values["arm"].string_value] = (
            values["vocab_size"].number_value, values["width"].number_value, values["seed"].number_value,
            values["learning_rate"].number_value,
        )  # fmt: skip
        described = hparams(folder, metadata.EXPERIMENT_TAG).experiment
        assert [info.name.tag for info in described.metric_infos] == list(HPARAM_METRICS)
        assert set(HPARAM_METRICS) <= set(events(folder).Tags()["scalars"])
        end = hparams(folder, metadata.SESSION_END_INFO_TAG).session_end_info
        assert end.status == api_pb2.STATUS_SUCCESS
    assert arms == {"tied": (64, 32, 0, 0.003), "untied": (64, 32, 0, 0.003)}


def test_a_failed_run_is_marked_failed(tmp_path: Path) -> None:
    logger = start(tmp_path)
    log_steps(logger, range(1, 3))
    logger.finish(130)
    end = hparams(tmp_path / "tensorboard/run-1", metadata.SESSION_END_INFO_TAG).session_end_info
    assert end.status == api_pb2.STATUS_FAILURE


def test_a_run_that_never_logged_leaves_nothing(tmp_path: Path) -> None:
    start(tmp_path).finish(1)
    assert not (tmp_path / "tensorboard").exists()


def test_a_row_is_on_disk_at_once(tmp_path: Path) -> None:
    log_steps(start(tmp_path), range(1, 4))
    assert len(curve(tmp_path / "tensorboard/run-1", "train/loss")) == 3


def test_a_run_that_goes_on_repeats_no_point(tmp_path: Path) -> None:
    """Killed after step 6, resumed from the checkpoint of step 4."""
    log_steps(start(tmp_path), range(1, 7))
    resumed = start(tmp_path, resumed=True)
    log_steps(resumed, range(5, 9))
    resumed.finish(0)
    steps = [step for step, _ in curve(tmp_path / "tensorboard/run-1", "train/loss")]
    assert steps == [step * TOKENS_PER_STEP for step in range(1, 9)]


def test_a_users_metric_without_tokens_has_its_place_and_costs_no_earlier_row(tmp_path: Path) -> None:
    """Lightning numbers such rows from 0: the first after a checkpoint has the number of that checkpoint."""
    log_steps(start(tmp_path), range(1, 5))
    resumed = start(tmp_path, resumed=True)
    resumed.log_metrics({"my/metric": 7.0, "epoch": 0}, 4)
    folder = tmp_path / "tensorboard/run-1"
    assert curve(folder, "my/metric") == [(4 * TOKENS_PER_STEP, 7.0)]
    assert len(curve(folder, "train/loss")) == 4
    assert "epoch" not in events(folder).Tags()["scalars"]


def test_a_loss_that_is_no_number_is_shown_as_such(tmp_path: Path) -> None:
    start(tmp_path).log_metrics({"train/loss": math.nan, "tokens": 8}, 1)
    ((_, value),) = curve(tmp_path / "tensorboard/run-1", "train/loss")
    assert math.isnan(value)


def test_other_ranks_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = start(tmp_path)
    log_steps(logger, range(1, 3))
    logger.finish(0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("run_id", "group"), [("../out", None), ("a/b", None), ("a", ".."), ("a", "b/c")])
def test_a_run_has_no_other_place(tmp_path: Path, run_id: str, group: str | None) -> None:
    with pytest.raises(RequestError, match=r"has no place in .*; start a new run$"):
        start(tmp_path, run_id, group=group)


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tensorboard/run-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match="has no place in"):
        start(tmp_path)


def test_a_strangers_config_writes_nowhere_else(tmp_path: Path) -> None:
    node = config_of("logger=tensorboard")["logger"]["tensorboard"] | {
        "save_dir": str(tmp_path / "elsewhere")
    }
    with pytest.raises(RequestError, match=r"save_dir=.* leads outside the run"):
        build(node, TensorBoardLogger, [tmp_path / "outputs"])


@pytest.mark.parametrize("extra", ["tensorboard", "trackio"])
def test_a_missing_extra_is_named_before_anything_starts(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(f"logger={extra}")
    check_config(config)
    monkeypatch.setitem(sys.modules, extra, None)
    with pytest.raises(
        RequestError, match=rf"^logger.{extra} needs the extra: pip install 'tielab\[{extra}\]'"
    ):
        check_config(config)


def test_several_loggers_are_one_list_and_follow_the_output_folder() -> None:
    original = config_of("logger=[wandb,tensorboard,trackio]")
    assert list(original["logger"]) == ["wandb", "tensorboard", "trackio"]
    config = config_of("logger=[wandb,tensorboard,trackio]", "output_dir=elsewhere")
    assert {node["save_dir"] for node in config["logger"].values()} == {"elsewhere"}
    repeated = {**original, "output_dir": "elsewhere"}
    follow_links(repeated, config_of("logger=[wandb,tensorboard,trackio]"), {"output_dir"})
    assert {node["save_dir"] for node in repeated["logger"].values()} == {"elsewhere"}
