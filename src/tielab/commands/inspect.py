"""``tielab inspect``: is a model tied, and what does it cost."""

from pathlib import Path

import click

from tielab.commands.files import FOLDER


@click.command("inspect")
@click.argument("path", type=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: Path, as_json: bool) -> None:
    """Say whether the model in PATH is tied: in its file, in its config, and on loading.

    PATH is a safetensors file, a Hugging Face folder, or the folder of a run. Only headers are read; an
    embedding and a head are compared a mebibyte at a time, up to the first difference.

    \b
    tielab inspect model.safetensors
    tielab inspect ./Qwen3-0.6B
    tielab inspect outputs/runs/X --json
    """
    from tielab.inspection import render
    from tielab.inspection.inspect import inspect
    from tielab.inspection.run import inspect_run
    from tielab.record import RECORD_NAME

    if (path / RECORD_NAME).is_file():
        run = inspect_run(path)
        text = render.run_to_json(run) if as_json else render.show(render.page_of_run(run))
    else:
        found = inspect(path)
        text = render.to_json(found) if as_json else render.show(render.page_of(found))
    click.echo(text or "", nl=False)
