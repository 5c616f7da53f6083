"""Whole runs without the start of an interpreter each: composed here, executed by the fork server."""

from hydra import compose, initialize_config_dir

from running import ROOT
from tielab.checks import check_config
from tielab.config import plain, register
from tielab.launch import create_run, execute


def execute_run(folder, *overrides):
    """What ``train.py OVERRIDES`` does with one job in a folder; returns its record."""
    register(ROOT / "conf")
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = plain(compose("config", overrides=list(overrides)))
    check_config(config)
    create_run(config, folder)
    return execute(config, folder)
