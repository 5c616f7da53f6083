"""``tielab resume``: go on where a run or a sweep stopped."""

import sys
from pathlib import Path

import click

from tielab.commands.files import RUN_OR_SWEEP


@click.command("resume")
@click.argument("folder", type=RUN_OR_SWEEP)
def command(folder: Path) -> None:
    """Finish the run or the sweep in FOLDER: unfinished jobs go on from their last checkpoints.

    Finished jobs are left alone, failed ones are tried again, missing ones are run. With a launcher of its
    own, a sweep is resumed by its command with resume=true.

    \b
    tielab resume outputs/sweeps/X
    tielab resume outputs/runs/X
    """
    from tielab.errors import INTERRUPTED
    from tielab.launch import interrupted_by_sigterm
    from tielab.resume import resume as go_on

    try:
        with interrupted_by_sigterm():
            status = go_on(folder)
        sys.exit(status)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
