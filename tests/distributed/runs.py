"""Whole runs without the start of an interpreter each: composed here, executed by the fork server."""

from hydra import compose, initialize_config_dir

from running import ROOT
from tielab.checks import check_config
from tielab.config import plain, register
from tielab.folder import reserve
from tielab.record import write_record
from tielab.run import execute, first_record


def execute_run(folder, *overrides):
    """What ``train.py OVERRIDES`` does with one job in a folder; returns its record."""
    register(ROOT / "conf")
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = plain(compose("config", overrides=list(overrides)))
    check_config(config)
    reserve(config, folder)
    write_record(folder, first_record(config))
    return execute(config, folder)
