"""``tielab rerun``: repeat a run."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tielab.commands.files import RUN
from tielab.errors import printable


@click.command("rerun", context_settings={"ignore_unknown_options": True})
@click.argument("run", type=RUN)
@click.argument("overrides", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print what differs as JSON, all else as notes.")
def command(run: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Repeat RUN into a new folder, with optional key=value OVERRIDES, and say what differs.

    \b
    tielab rerun outputs/runs/X
    tielab rerun outputs/runs/X seed=1
    tielab rerun outputs/runs/X --json
    """
    from tielab import rerun

    with _output_as_notes() if as_json else contextlib.nullcontext():
        done = rerun.rerun(run, overrides)
    if as_json:
        click.echo(json.dumps(rerun.as_json(done), indent=1))
    else:
        click.echo("".join(f"{printable(line)}\n" for line in rerun.describe(done)), nl=False)
    sys.exit(done.status)


@contextlib.contextmanager
def _output_as_notes() -> Iterator[None]:
    """What this process and those it starts would print goes to standard error meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
