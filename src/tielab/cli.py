"""The ``tielab`` command: everything beside the training.

A command lives in ``tielab/commands`` and is imported when it is asked for, so that none pays for another.
"""

from importlib import import_module
from typing import Any

import click

from tielab.errors import RequestError

COMMANDS = {
    "report": "report",
    "publish": "publish",
    "resume": "resume",
    "rerun": "rerun",
    "sample": "sample",
    "align": "align",
    "dashboard": "dashboard",
    "data": "data",
}
"""Each command with its module in ``tielab.commands``, whose ``command`` it is."""


class Commands(click.Group):
    """The commands by name; a wrong request is answered with one line and status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"tielab.commands.{COMMANDS[cmd_name]}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RequestError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(2)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Tied or untied? Compare, repeat and sample the runs that train.py wrote.

    \b
    python train.py -m model.tied=true,false     train both arms
    tielab report                                the table of the newest sweep or run
    tielab resume SWEEP                          go on where a sweep or a run stopped
    tielab rerun RUN                             repeat a run, say what differs
    tielab sample RUN --prompt "The city"        text from a trained model
    tielab align SWEEP                           does the tied matrix resemble the input or the output one
    """


if __name__ == "__main__":
    main()
