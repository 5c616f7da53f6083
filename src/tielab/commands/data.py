"""``tielab data``: what a corpus is made of."""

import json
import logging
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tielab.errors import printable

if TYPE_CHECKING:
    from tielab.data.describe import CorpusDescription
    from tielab.data.shelf import Corpus

VOCABULARIES = "byte,char,bpe1024,bpe4096,bpe16384"
MAX_LINE = 90
"""Characters shown of a line of text."""


@click.command("data")
@click.argument("name", required=False)
@click.argument("overrides", nargs=-1)
@click.option(
    "--vocab",
    default=VOCABULARIES,
    show_default=True,
    help="Options of vocab=, bpeN for any N; '' for none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str | None, overrides: tuple[str, ...], vocab: str, as_json: bool) -> None:
    """What the corpus NAME is: splits, hashes, sample lines, bytes per token; without NAME: which there are.

    NAME is an option of data=, OVERRIDES are those of train.py. The text and the tokens of every
    vocabulary named are in data.cache_dir afterwards.

    \b
    tielab data
    tielab data wiki
    tielab data text data.paths=[notes] --vocab byte,bpe2000
    tielab data wikitext2 width=d256 --json
    """
    if name is None:
        _list_corpora(as_json)
        return
    from tielab.checks import check_config
    from tielab.data.describe import describe_corpus, describe_vocabulary
    from tielab.data.shelf import config_with, find_corpus

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    corpus = find_corpus(name)
    names = [part for part in vocab.split(",") if part]
    configs = {part: config_with(name, part, overrides) for part in names or ["byte"]}
    for config in configs.values():
        check_config(config)
    config = next(iter(configs.values()))
    description = describe_corpus(config["data"])
    for part in names:
        embed_dim = configs[part]["model"]["embed_dim"]
        description.vocabularies.append(describe_vocabulary(part, configs[part]["data"], embed_dim))
    if as_json:
        click.echo(json.dumps({**asdict(corpus), **asdict(description)}, indent=1))
    else:
        _show(corpus, description, config["model"]["embed_dim"])


def _list_corpora(as_json: bool) -> None:
    from tielab.data.shelf import corpora, is_here

    found = [(corpus, is_here(corpus.name)) for corpus in corpora()]
    if as_json:
        rows = [asdict(corpus) | {"is_here": here} for corpus, here in found]
        click.echo(json.dumps(rows, indent=1))
        return
    width = max(len(corpus.name) for corpus, _ in found)
    states = {True: "text is here", False: "to be downloaded", None: ""}
    for corpus, here in found:
        notes = [corpus.licence or "", states[here]]
        click.echo(f"{click.style(corpus.name.ljust(width), bold=True)}  {corpus.about[0]}")
        if any(notes):
            click.echo(f"{'':{width}}  {'; '.join(note for note in notes if note)}")


def _show(corpus: "Corpus", description: "CorpusDescription", embed_dim: int) -> None:
    click.echo(f"{click.style(corpus.name, bold=True)}: {corpus.about[0]}")
    for line in corpus.about[1:]:
        click.echo(line)
    if corpus.licence:
        click.echo(f"Licence: {corpus.licence}.")
    click.echo(f"Corpus hash: {description.corpus_hash}\n")
    _table(
        ["split", f"{description.document}s", "words", "bytes", "sha256 of the text"],
        [
            [name, f"{split.documents:,}", f"{split.words:,}", f"{split.bytes:,}", split.sha256[:16]]
            for name, split in description.splits.items()
        ],
    )
    for name, split in description.splits.items():
        if split.in_train:
            click.echo(f"{split.in_train:,} of the {description.document}s of {name} are in train as well")
    for name, split in description.splits.items():
        click.echo(f"\n{click.style(name, bold=True)}, some first lines")
        for line in split.lines:
            click.echo(f"  {_shortened(printable(line))}")
    if description.vocabularies:
        click.echo()
        _show_vocabularies(description, embed_dim)


def _show_vocabularies(description: "CorpusDescription", embed_dim: int) -> None:
    got = [vocabulary for vocabulary in description.vocabularies if vocabulary.refusal is None]
    headings = ["vocab", "V", "bytes/token", "train tokens", "ids train lacks", f"V x D, D = {embed_dim}"]
    rows: list[list[Any]] = [
        [v.name, f"{v.vocab_size:,}", f"{v.bytes_per_token:.3f}", f"{v.train_tokens:,}", f"{v.unused_ids:,}",
         f"{v.embedding_parameters:,}"]
        for v in got
    ]  # fmt: skip
    if got:
        _table(headings, rows)
        click.echo("bytes/token: of the validation split. V x D: the parameters that tying saves.")
    for vocabulary in description.vocabularies:
        if vocabulary.refusal is not None:
            click.echo(f"vocab={vocabulary.name}: {vocabulary.refusal}")


def _table(headings: list[str], rows: list[list[str]]) -> None:
    """Columns of text: the first aligned to the left, the others, which are numbers, to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]
    for row in [headings, *rows]:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        line = "  ".join([first.strip().ljust(widths[0]), *others])
        click.echo(click.style(line, bold=True) if row is headings else line)


def _shortened(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..."
