"""A W&B that knows only this test's folder, and a sweep that every local viewer shows."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import wandb

from running import ROOT


@pytest.fixture
def wandb_environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """No key, no server, no files outside the test's folder; the environment is put back afterwards."""
    values = {
        "NETRC": str(tmp_path / "netrc"),
        "WANDB_BASE_URL": "http://127.0.0.1:9",
        "WANDB_CACHE_DIR": str(tmp_path / "cache"),
        "WANDB_CONFIG_DIR": str(tmp_path / "config"),
        "WANDB_DATA_DIR": str(tmp_path / "data"),
        "WANDB_DIR": str(tmp_path),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "true",
    }
    others = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    with mock.patch.dict(os.environ, others | values, clear=True):
        wandb.teardown()
        yield {**others, **values}
        if wandb.run is not None:
            wandb.run.finish()
        wandb.teardown()


@pytest.fixture(scope="session")
def viewed_sweep(tiny: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tied and an untied run with both local loggers; its ``outputs`` have their files."""
    from tielab import launch

    folder = tmp_path_factory.mktemp("viewed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["train.py"])
        arguments = ["-m", *tiny, "logger=[tensorboard,trackio]", "model.tied=true,false"]
        status = launch.main(ROOT / "conf", [*arguments, "trainer.log_every_n_steps=8"])
    assert status == 0
    return folder
