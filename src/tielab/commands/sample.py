"""``tielab sample``: text from a trained model."""

from pathlib import Path
from typing import Any

import click

from tielab.commands.files import FOLDER
from tielab.errors import printable


@click.command("sample")
@click.argument("run", type=FOLDER)
@click.option("--prompt", required=True, help="Text to continue.")
@click.option("--tokens", "num_tokens", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--greedy", is_flag=True, help="Take the most likely id each time.")
@click.option("--temperature", default=1.0, show_default=True, type=float)
@click.option("--top-k", type=int, help="Draw from the k most likely ids.")
@click.option("--top-p", type=float, help="Draw from the fewest ids with at least this probability.")
@click.option("--seed", default=0, show_default=True, type=int)
@click.option("--checkpoint", default="best", show_default=True, help="best, last, or a file.")
def command(run: Path, prompt: str, num_tokens: int, seed: int, checkpoint: str, **how: Any) -> None:
    """Continue a prompt with the model that RUN trained.

    \b
    tielab sample outputs/runs/X --prompt "The city" --top-k 50
    """
    from tielab.sample import continue_text, load_run

    model, tokenizer = load_run(run, checkpoint)
    text = continue_text(model, tokenizer, prompt, num_tokens, seed, **how)
    # The pieces of a stranger's tokenizer may be escapes.
    click.echo(prompt + printable(text.replace("\r\n", "\n"), keep="\n\t"))
