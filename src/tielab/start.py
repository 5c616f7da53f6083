"""The start of ``train.py``: ``--help`` at once, and torch imported beside while Hydra composes."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tielab.fork_server import kill_fork_server, start_fork_server
from tielab.help import asks_for_help, help_text

RUN_FLAGS = {
    "-m", "--multirun", "-r", "--run", "-cd", "--config-dir", "-cn", "--config-name",
}  # fmt: skip
"""With no others a command is meant to train."""
OTHER_WAYS = ("launch=", "hydra/launcher=")
"""Begin overrides with which the processes may be started by others than this one's fork server."""


def main(config_dir: Path) -> int:
    """Do what the command line of this process asks for and return its exit status.

    Args:
        config_dir: the folder of the primary config and the config groups.
    """
    arguments = sys.argv[1:]
    if asks_for_help(arguments):
        print(help_text(config_dir))
        return 0
    early = will_fork(arguments) and start_fork_server(with_wandb=logs_to_wandb(arguments))
    from tielab import fork_server, launch

    try:
        return launch.main(config_dir)
    finally:
        if early and not fork_server.has_forked:
            kill_fork_server()


def will_fork(arguments: Sequence[str]) -> bool:
    """Whether these arguments are meant to start processes from the fork server, were they right."""
    flags = {argument.partition("=")[0] for argument in arguments if argument.startswith("-")}
    return flags <= RUN_FLAGS and not any(argument.startswith(OTHER_WAYS) for argument in arguments)


def logs_to_wandb(arguments: Sequence[str]) -> bool:
    """Whether these arguments leave W&B as it is by default; a wrong guess costs a job its import."""
    loggers = [argument for argument in arguments if argument.startswith(("logger=", "~logger"))]
    return all("wandb" in argument and not argument.startswith("~") for argument in loggers)
