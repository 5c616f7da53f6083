"""``tielab export``: a run's model for other software."""

import sys
from pathlib import Path

import click

from tielab.commands.files import FOLDER


@click.command("export")
@click.argument("run", type=FOLDER)
@click.argument("folder", type=FOLDER, required=False)
@click.option("--checkpoint", default="best", show_default=True, type=click.Choice(["best", "last"]))
@click.option(
    "--untied",
    is_flag=True,
    help="Write the two matrices that the model computes with, also where it has one; any tying scheme.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: Path, folder: Path | None, checkpoint: str, untied: bool, as_json: bool) -> None:
    """Write the model of RUN as a Hugging Face folder: weights, config, tokenizer, card.

    FOLDER is RUN/export unless it is named; it must be new or empty. transformers loads it with the same
    logits, and a shared matrix is in the file once.

    \b
    tielab export outputs/runs/X
    tielab export outputs/runs/X my-model --checkpoint last
    """
    from tielab.exchange import export as exporting

    written = exporting.export(run, folder, checkpoint, untied=untied)
    if written.status != "finished":
        print(f"note: the run did not finish, its record says {written.status}", file=sys.stderr)
    if as_json:
        click.echo(exporting.as_json(written))
        return
    matrices = (
        "one matrix for embedding and head" if written.tie_word_embeddings else "embedding and head apart"
    )
    click.echo(f"{written.folder}: {written.num_parameters:,} parameters, {matrices}")
