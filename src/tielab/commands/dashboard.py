"""``tielab dashboard``: the W&B dashboard, printed or saved."""

import json
import re

import click

from tielab.errors import RequestError

PLACE = re.compile(r"([^/\s]+)/([^/\s]+)")
SWEEP = click.option("--sweep", help="Show the runs of this sweep only (the name of its folder).")


@click.group("dashboard")
def command() -> None:
    """The W&B dashboard: bits per byte by arm, parameters, speed, what differs; grouped by sweep.

    \b
    tielab dashboard show
    tielab dashboard publish me/tielab
    """


@command.command("show")
@click.argument("place", metavar="[ENTITY/PROJECT]", default="ENTITY/PROJECT")
@SWEEP
def show(place: str, sweep: str | None) -> None:
    """Print what would be saved, as JSON; needs no key and no server.

    \b
    tielab dashboard show
    tielab dashboard show me/tielab --sweep 2026-11-30_12-00-00
    """
    from tielab.dashboard import spec

    click.echo(json.dumps(spec(*names_of(place), sweep), indent=1))


@command.command("publish")
@click.argument("place", metavar="ENTITY/PROJECT")
@SWEEP
@click.option("--url", help="Replace the saved view at this address; without it a new one is made.")
def publish(place: str, sweep: str | None, url: str | None) -> None:
    """Save the dashboard to the project and print its address.

    \b
    tielab dashboard publish me/tielab
    tielab dashboard publish me/tielab --sweep 2026-11-30_12-00-00
    tielab dashboard publish me/tielab --url "https://wandb.ai/me/tielab?nw=a0b1c2d3e4f"
    """
    from tielab.dashboard import publish as save

    click.echo(save(*names_of(place), sweep, url))


def names_of(place: str) -> tuple[str, str]:
    """Entity and project of ``ENTITY/PROJECT``.

    Raises:
        RequestError: it is not written so.
    """
    match = PLACE.fullmatch(place)
    if match is None:
        raise RequestError(f"{place!r} names no project of W&B; write ENTITY/PROJECT")
    return match[1], match[2]
