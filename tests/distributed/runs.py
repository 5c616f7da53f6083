"""Whole runs without the start of an interpreter each: composed here, executed by the fork server."""

from running import config_of
from tielab.checks import check_config
from tielab.folder import reserve
from tielab.record import write_record
from tielab.run import execute, first_record


def execute_run(folder, *overrides):
    """What ``train.py OVERRIDES`` does with one job in a folder; returns its record."""
    config = config_of(*overrides)
    check_config(config)
    reserve(config, folder)
    write_record(folder, first_record(config))
    return execute(config, folder)
