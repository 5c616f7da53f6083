"""``tielab ls``: what there is, and how far it has come."""

import json
from pathlib import Path

import click

from tielab.commands.files import SWEEP


@click.command("ls")
@click.argument("folders", nargs=-1, type=SWEEP)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(folders: tuple[Path, ...], as_json: bool) -> None:
    """List the sweeps and runs below FOLDERS (default: outputs), newest first; of one sweep its jobs.

    Status: running, finished, diverged (the loss was no number), failed, killed (gone without a word),
    interrupted, waiting (not begun), damaged (cannot be read).

    \b
    tielab ls
    tielab ls outputs/sweeps/X
    tielab ls experiments --json
    """
    from tielab.overview import entries
    from tielab.overview.text import terminal_width, to_text

    listing = entries.list_folders(folders or (Path("outputs"),))
    if as_json:
        click.echo(json.dumps(entries.as_json(listing), indent=1, allow_nan=False))
        return
    click.echo(to_text(listing, width=terminal_width()), nl=False)
