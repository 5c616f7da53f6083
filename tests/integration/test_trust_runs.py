"""Whole commands on what a stranger wrote: status 2, one line, and nothing has happened."""

import os
from pathlib import Path

import pytest
import torch
import yaml

from running import ROOT
from tielab import launch

REDUCED = ("budget.tokens=512", "budget.num_validations=1")
SLASH = "{step].backward.__globals__[__file__][0}"
"""A slash, spelled with the template language of checkpoint names."""


@pytest.fixture(autouse=True)
def _fresh(cache_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setenv("PYTHONSAFEPATH", "")


@pytest.fixture
def here(monkeypatch, capsys):
    """``train.py ARGUMENTS`` with the run in this process: status and standard error."""

    def run(*arguments):
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        status = launch.main(ROOT / "conf", [*map(str, arguments), "launch=inline"])
        return status, capsys.readouterr().err

    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny):
    """A finished run."""
    cwd = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setenv("HYDRA_FULL_ERROR", "0")
        assert launch.main(ROOT / "conf", [*tiny, *REDUCED, "launch=inline"]) == 0
    (folder,) = (cwd / "outputs" / "runs").iterdir()
    return folder


@pytest.fixture
def stranger(finished, tmp_path):
    """Makes a stranger's run: ours with its config changed, in a folder of its own."""

    def write(change):
        config = yaml.safe_load((finished / "run.yaml").read_text())
        change(config)
        folder = tmp_path / "stranger"
        folder.mkdir()
        (folder / "record.json").write_text((finished / "record.json").read_text())
        (folder / "run.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        return folder

    return write


def refused(status, err, message):
    assert status == 2, err
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1, err
    assert message in err


def with_hydra_section(config):
    config["hydra"] = {"callbacks": {"x": {"_target_": "os.system", "command": "touch marker"}}}


def with_target(config):
    config["callbacks"]["x"] = {"_target_": "os.system", "command": "touch marker"}


def test_a_strangers_config_calls_nothing(stranger, shell, tmp_path):
    done = shell("--config-dir", stranger(with_hydra_section), "--config-name", "run")
    refused(done.returncode, done.stderr, "has a key that is not of a run: hydra")
    assert [path.name for path in tmp_path.iterdir()] == ["stranger"]


def with_address(config):
    config["data"] |= {
        "corpus": "url",
        "paths": [],
        "url": {"address": "http://127.0.0.1:9/x", "sha256": "0" * 64},
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [(with_address, "would download data.url.address=http://127.0.0.1:9/x"),
     (with_hydra_section, "has a key that is not of a run: hydra"),
     (with_target, "_target_ os.system is outside the allowed packages")],
)  # fmt: skip
def test_its_repetition_calls_nothing(change, message, stranger, here, tielab, tmp_path, monkeypatch):
    run = stranger(change)
    refused(*here("--config-dir", run, "--config-name", "run"), message)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    done = tielab("rerun", run, "launch=inline")
    refused(done.returncode, done.stderr, message)
    assert not (tmp_path / "marker").exists()
    assert not list(tmp_path.glob("outputs/runs/*"))


def test_modules_beside_a_config_are_not_imported(stranger, shell):
    run = stranger(lambda config: None)
    for name in ("yaml", "socket", "torch", "sitecustomize"):
        (run / f"{name}.py").write_text("open('marker', 'w')\n")
    done = shell("--config-dir", ".", "--config-name", "run", *REDUCED, "launch=forkserver", cwd=run)
    assert done.returncode == 0, done.stderr
    assert not (run / "marker").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+callbacks.last.dirpath=weights", "dirpath=weights leads outside the run"),
        ("callbacks.last.filename=../../../../elsewhere/x", "leads outside the run"),
        ("+logger.wandb={_target_:tielab.tracking.wandb.wandb_logger,project:p,save_dir:elsewhere}",
         "save_dir=elsewhere leads outside the run"),
        ("+logger.csv={_target_:lightning.pytorch.loggers.CSVLogger,save_dir:outputs,name:../../elsewhere}",
         "name=../../elsewhere leads outside the run"),
    ],
)  # fmt: skip
def test_a_callback_or_logger_writes_nowhere_else(override, message, here, tiny, tmp_path):
    refused(*here(*tiny, *REDUCED, override), message)
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]
    assert not list(tmp_path.glob("outputs/runs/*"))


def test_a_file_name_that_spells_a_path_writes_nowhere_else(here, tiny, tmp_path):
    path = f"{tmp_path}/elsewhere/x".replace("/", SLASH)
    overrides = ("+callbacks.last.auto_insert_metric_name=false", f"callbacks.last.filename='{path}'")
    status, err = here(*tiny, *REDUCED, *overrides)
    refused(status, err.splitlines()[-1], "is outside the run")
    assert not (tmp_path / "elsewhere").exists()


class Evil:
    """Unpickled, it runs a command."""

    def __reduce__(self):
        return os.system, ("touch marker",)


def evil_hyper_parameters(checkpoint):
    checkpoint["hyper_parameters"] = {"x": Evil()}


def wrong_shape(checkpoint):
    checkpoint["state_dict"]["model.token_embed.weight"] = torch.zeros(3, 3)


def missing_tensor(checkpoint):
    del checkpoint["state_dict"]["model.final_norm.bias"]


def no_step(checkpoint):
    del checkpoint["global_step"]


def no_loops(checkpoint):
    checkpoint["loops"] = {"fit_loop": 3}


def foreign_optimizer(checkpoint):
    checkpoint["optimizer_states"] = [{"state": {}, "param_groups": []}]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (evil_hyper_parameters, "is truncated or not a checkpoint"),
        (wrong_shape, "model.token_embed.weight is a tensor (3, 3), expected"),
        (missing_tensor, "model.final_norm.bias is missing"),
        (no_step, "does not say its step"),
        (no_loops, "cannot be restored"),
        (foreign_optimizer, "cannot be restored"),
    ],
)
def test_a_run_goes_on_from_no_such_checkpoint(damage, message, finished, here, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # must not weaken it
    longer = damaged_checkpoint(finished, tmp_path / "x.ckpt", damage)
    status, err = here(*tiny, *longer, "resume_from=x.ckpt")
    refused(status, err.splitlines()[-1], message)
    assert not (tmp_path / "marker").exists()


def damaged_checkpoint(finished, path, damage):
    """Writes a checkpoint of a run twice as long and returns that run's overrides."""
    checkpoint = torch.load(finished / "checkpoints" / "last.ckpt", weights_only=True)
    checkpoint["tielab"]["identity"]["budget.tokens"] = 1024
    damage(checkpoint)
    torch.save(checkpoint, path)
    return "budget.tokens=1024", "budget.num_validations=1"


def test_the_state_of_a_checkpoint_deletes_nothing(finished, here, tiny, tmp_path):
    """Lightning deletes the file that its callback remembers as the former best one."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()

    def remember(checkpoint):
        for name, state in checkpoint["callbacks"].items():
            if name.startswith("ModelCheckpoint"):
                state["best_model_path"] = f"local://{precious}"

    longer = damaged_checkpoint(finished, tmp_path / "x.ckpt", remember)
    status, err = here(*tiny, *longer, "resume_from=x.ckpt")
    refused(status, err.splitlines()[-1], "is outside the run")
    assert (precious / "file").exists()


@pytest.mark.parametrize("damage", [evil_hyper_parameters, wrong_shape, missing_tensor])
def test_no_sample_from_such_a_checkpoint(damage, finished, tielab, tmp_path):
    checkpoint = torch.load(finished / "checkpoints" / "last.ckpt", weights_only=True)
    damage(checkpoint)
    torch.save(checkpoint, tmp_path / "x.ckpt")
    done = tielab("sample", finished, "--prompt", "a", "--checkpoint", tmp_path / "x.ckpt")
    refused(done.returncode, done.stderr, "checkpoint")
    assert not (tmp_path / "marker").exists()


def test_our_own_checkpoint_is_taken(finished, here, tiny, tmp_path):
    longer = damaged_checkpoint(finished, tmp_path / "x.ckpt", lambda checkpoint: None)
    status, err = here(*tiny, *longer, "resume_from=x.ckpt")
    assert status == 0, err


def test_a_repetition_with_another_output_folder_leaves_the_old_one_alone(stranger, here, tmp_path):
    def use_wandb(config):
        config["logger"]["wandb"] = {
            "_target_": "tielab.tracking.wandb.wandb_logger",
            "project": "p", "entity": None, "mode": "disabled", "save_dir": "outputs", "tags": [],
        }  # fmt: skip

    run = stranger(use_wandb)
    record = run / "record.json"
    record.write_text(
        record.read_text().replace('"logger": {}', '"logger": {"wandb": {"save_dir": "outputs"}}')
    )
    status, err = here("--config-dir", run, "--config-name", "run", *REDUCED, "output_dir=other")
    assert status == 0, err
    assert not Path("outputs").exists()
    assert len(list(tmp_path.glob("other/runs/*"))) == 1
