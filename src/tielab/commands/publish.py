"""``tielab publish``: a study's evidence, copied beside its question."""

from pathlib import Path

import click

from tielab.commands.files import FOLDER, SWEEP
from tielab.waiting import busy


@click.command("publish")
@click.argument("folders", nargs=-1, required=True, type=SWEEP)
@click.argument("study", type=FOLDER)
@click.option("--baseline", help="The arm that the others are compared with.")
def command(folders: tuple[Path, ...], study: Path, baseline: str | None) -> None:
    """Copy the runs in or below FOLDERS into STUDY, with results.csv, tables and figures.

    \b
    python train.py experiments=controls
    tielab publish outputs/sweeps/X experiments/controls
    tielab publish outputs/sweeps/X experiments/controls --baseline untied
    """
    from tielab.publish import RESULTS_NAME
    from tielab.publish import publish as write

    with busy("copying the runs, drawing the figures"):
        write(list(folders), study, baseline)
    click.echo(f"written: {study / RESULTS_NAME}")
