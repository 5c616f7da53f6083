"""``tielab sample``: text from a trained model."""

import json
from pathlib import Path
from typing import Any

import click

from tielab.commands.files import RUN
from tielab.errors import printable
from tielab.waiting import busy


@click.command("sample")
@click.argument("run", type=RUN)
@click.option("--prompt", required=True, help="Text to continue.")
@click.option("--tokens", "num_tokens", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--greedy", is_flag=True, help="Take the most likely id each time.")
@click.option("--temperature", default=1.0, show_default=True, type=float)
@click.option("--top-k", type=int, help="Draw from the k most likely ids.")
@click.option("--top-p", type=float, help="Draw from the fewest ids with at least this probability.")
@click.option("--seed", default=0, show_default=True, type=int)
@click.option("--checkpoint", default="best", show_default=True, help="best, last, or a file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    run: Path, prompt: str, num_tokens: int, seed: int, checkpoint: str, as_json: bool, **how: Any
) -> None:
    """Continue a prompt with the model that RUN trained.

    \b
    tielab sample outputs/runs/X --prompt "The city" --top-k 50
    tielab sample outputs/runs/X --prompt "The city" --greedy --json
    """
    with busy("loading the model"):
        from tielab.sample import continue_text, load_run

        model, tokenizer = load_run(run, checkpoint)
    with busy(f"drawing {num_tokens} tokens"):
        text = continue_text(model, tokenizer, prompt, num_tokens, seed, **how)
    if as_json:
        settings = {"tokens": num_tokens, "seed": seed, "checkpoint": checkpoint, **how}
        content = {"run": str(run), "prompt": prompt, "text": text, "settings": settings}
        click.echo(json.dumps(content, indent=1))
        return
    # The pieces of a stranger's tokenizer may be escapes.
    click.echo(prompt + printable(text.replace("\r\n", "\n"), keep="\n\t"))
