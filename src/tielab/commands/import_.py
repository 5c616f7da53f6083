"""``tielab import``: a run from a model of other software."""

import sys
from pathlib import Path

import click

from tielab.commands.files import FOLDER


@click.command("import", context_settings={"ignore_unknown_options": True})
@click.argument("folder", type=FOLDER)
@click.argument("overrides", nargs=-1)
@click.option("-m", "--multirun", "sweep", is_flag=True, help="Sweep over the lists in OVERRIDES.")
def command(folder: Path, overrides: tuple[str, ...], sweep: bool) -> None:
    """Train from the GPT-2-shaped model in FOLDER, as transformers saves it, with key=value OVERRIDES.

    Sizes, tokenizer and tie are the model's. model.tied=false starts both matrices as copies of a shared
    one; model.tied=true is refused for a model with two, unless they are equal or init_tie_from names one.

    \b
    tielab import gpt2 data.block_size=128 budget=smoke
    tielab import gpt2 -m model.tied=true,false data.block_size=128 seed=0,1,2
    tielab import untied-model model.tied=true init_tie_from=head
    """
    from tielab.exchange.start import start

    sys.exit(start(folder, overrides, sweep=sweep))
