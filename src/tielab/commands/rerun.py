"""``tielab rerun``: repeat a run."""

import sys
from pathlib import Path

import click

from tielab.commands.files import RUN


@click.command("rerun", context_settings={"ignore_unknown_options": True})
@click.argument("run", type=RUN)
@click.argument("overrides", nargs=-1)
def command(run: Path, overrides: tuple[str, ...]) -> None:
    """Repeat RUN into a new folder, with optional key=value OVERRIDES, and say what differs.

    \b
    tielab rerun outputs/runs/X
    tielab rerun outputs/runs/X seed=1
    """
    from tielab.rerun import rerun as repeat

    sys.exit(repeat(run, overrides))
