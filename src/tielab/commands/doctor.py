"""``tielab doctor``: what is missing or wrong on this machine."""

import json
import sys

import click

from tielab.waiting import busy


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Check this machine: versions, devices, W&B, cache, disk, rights to write; and say what to do.

    Nothing is changed and no server is asked. The exit status is 1 if something is to be repaired.

    \b
    tielab doctor
    tielab doctor --json
    """
    from tielab.doctor import findings, folders, machine, packages
    from tielab.overview.text import terminal_width

    checks: dict[str, findings.Check] = {
        "python": packages.check_python,
        "packages": packages.check_packages,
        "torch": machine.check_torch,
        "cores": machine.check_cores,
        "checkout": folders.check_checkout,
        "git": machine.check_git,
        "outputs": folders.check_outputs,
        "cache": folders.check_cache,
        "temporary folder": folders.check_temporary,
        "W&B": machine.check_wandb,
    }
    with busy("looking: the packages are imported"):
        found = findings.examine(checks)
    if as_json:
        click.echo(json.dumps(findings.as_json(found), indent=1))
    else:
        click.echo(findings.to_text(found, terminal_width()), nl=False)
    sys.exit(0 if findings.is_healthy(found) else 1)
