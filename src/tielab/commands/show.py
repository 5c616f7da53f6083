"""``tielab show``: one run as a page."""

import json
from pathlib import Path

import click

from tielab.commands.files import RUN
from tielab.errors import RequestError

CURVE_WIDTH = 40


@click.command("show")
@click.argument("run", type=RUN)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, the whole record in it.")
def command(run: Path, as_json: bool) -> None:
    """Show RUN as a page: what it is, what came out, what it cost, of what it was made.

    Works on a run that is under way, has failed or was killed, too.

    \b
    tielab show outputs/runs/X
    tielab show outputs/sweeps/X/0 --json
    """
    from tielab.overview.page import as_json as plain
    from tielab.overview.page import page, read_run, to_text
    from tielab.overview.text import terminal_width

    state = read_run(run)
    try:
        if as_json:
            text = json.dumps(plain(run, state), indent=1, allow_nan=False) + "\n"
        else:
            text = to_text(page(run, state, CURVE_WIDTH), terminal_width())
    except (TypeError, AttributeError, ValueError) as error:  # a stranger's record may hold anything
        raise RequestError(
            f"{run}: its record is damaged ({error}); tielab ls tells what can be read"
        ) from None
    click.echo(text, nl=False)
