"""``tielab align``: how alike token matrices are."""

from pathlib import Path

import click

from tielab.commands.files import FOLDER, RUN, RUN_OR_SWEEP, wrote_csv
from tielab.errors import RequestError
from tielab.waiting import busy


@click.command("align")
@click.argument("folders", nargs=-1, required=True, type=RUN_OR_SWEEP)
@click.option(
    "--ceiling",
    "ceilings",
    multiple=True,
    type=RUN,
    help="A run that repeats one of the two with another seed; repeatable.  [default: those beside them]",
)
@click.option(
    "--min-count",
    default=100,
    show_default=True,
    type=click.IntRange(min=0),
    help="Fewest occurrences of a token in the training text; 0 takes all rows.",
)
@click.option("--checkpoint", default="last", show_default=True, type=click.Choice(["last", "best"]))
@click.option(
    "--csv", "csv_file", type=FOLDER, help="Also write full-precision CSV to this file; - is standard output."
)
@click.option("--json", "format", flag_value="json", help="Print JSON.")
def command(
    folders: tuple[Path, ...], ceilings: tuple[Path, ...], min_count: int, checkpoint: str,
    csv_file: Path | None, format: str | None,
) -> None:  # fmt: skip
    """How alike the token matrices of two runs are, or of all arms and seeds in a SWEEP.

    A tied run has one matrix, an untied one its in and its out; of a single untied run the two are compared.
    Each measure comes with its chance and with its ceiling: the likeness of the same matrix of two seeds.
    Two runs are best compared across seeds: with one seed they began alike.

    \b
    tielab align outputs/sweeps/X
    tielab align UNTIED_RUN TIED_RUN --ceiling TIED_RUN_OF_ANOTHER_SEED
    tielab align UNTIED_RUN --json
    """
    from tielab.alignment.render import show
    from tielab.record import RECORD_NAME

    if len(folders) > 2:
        raise RequestError(f"align takes one folder or two runs, found {len(folders)}; name two runs")
    is_sweep = len(folders) == 1 and not (folders[0] / RECORD_NAME).is_file()
    if is_sweep and ceilings:
        raise RequestError(f"--ceiling is for two runs, {folders[0]} is a folder of them; leave it out")
    with busy("loading the models, comparing their matrices"):
        from tielab.alignment.pair import align_pair
        from tielab.alignment.sweep import align_sweep

        results = (
            align_sweep(folders[0], checkpoint, min_count)
            if is_sweep
            else align_pair(folders[0], folders[-1], ceilings, checkpoint, min_count)
        )
    if csv_file is not None and wrote_csv(show(results, "csv") or "", csv_file):
        return
    click.echo(show(results, format or "auto") or "", nl=False)
