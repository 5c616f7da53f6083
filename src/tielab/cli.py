"""The ``tielab`` command: everything after the training."""

import sys
from pathlib import Path
from typing import Any

import click

from tielab.errors import RequestError, printable

FOLDER = click.Path(path_type=Path)


class OneLineErrors(click.Group):
    """A command group that answers a wrong request with one line and status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RequestError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(2)


@click.group(cls=OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Tied or untied? Compare, repeat and sample the runs that train.py wrote.

    \b
    python train.py -m model.tied=true,false     train both arms
    tielab report                                the table of the newest sweep or run
    tielab resume SWEEP                          go on where a sweep or a run stopped
    tielab rerun RUN                             repeat a run, say what differs
    tielab sample RUN --prompt "The city"        text from a trained model
    tielab align SWEEP                           does the tied matrix resemble the input or the output one
    """


@main.command()
@click.argument("folders", nargs=-1, type=FOLDER)
@click.option(
    "--csv", "csv_file", type=FOLDER, help="Also write full-precision CSV to this file; - is standard output."
)
@click.option(
    "--html", "html_file", type=FOLDER, help="Also write all of it with figures as one page for a browser."
)
@click.option("--figures", type=FOLDER, help="Also write the figures into this folder, as PDF and SVG.")
@click.option("--markdown", "format", flag_value="markdown", help="Print a Markdown table.")
@click.option("--json", "format", flag_value="json", help="Print JSON.")
@click.option("--runs-csv", "runs_file", type=FOLDER, help="Also write a CSV row for each run to this file.")
@click.option("--baseline", help="Compare every arm with this one: untied, tied, or as the table names it.")
def report(
    folders: tuple[Path, ...],
    csv_file: Path | None,
    html_file: Path | None,
    figures: Path | None,
    format: str | None,
    runs_file: Path | None,
    baseline: str | None,
) -> None:
    """Compare the runs in or below FOLDERS (default: the newest sweep or run in outputs/).

    \b
    tielab report
    tielab report outputs/sweeps/A outputs/sweeps/B --csv table.csv
    tielab report outputs/sweeps/A --html report.html --figures figures
    tielab report outputs --baseline "tied, head_map linear"
    """
    from tielab.report.collect import collect_runs
    from tielab.report.compare import compare
    from tielab.report.render import show, to_csv, to_runs_csv

    chosen = list(folders)
    if not chosen:
        chosen = [newest(Path("outputs"))]
        click.echo(f"{chosen[0]}:", err=True)
    comparison = compare(collect_runs(chosen), baseline)
    if html_file is not None:
        from tielab.report.html import page

        _write(page(comparison), html_file)
    if figures is not None:
        from tielab.report.figures import write_figures

        write_figures(comparison, figures)
    for file, text in ((csv_file, to_csv), (runs_file, to_runs_csv)):
        if file is not None and _wrote_csv(text(comparison), file):
            return
    click.echo(show(comparison, format or "auto") or "", nl=False)


def _wrote_csv(text: str, file: Path) -> bool:
    """Write CSV to a file, or to standard output for ``-``; whether that was standard output."""
    if str(file) == "-":
        click.echo(text, nl=False)
        return True
    _write(text, file)
    return False


def _write(text: str, file: Path) -> None:
    from tielab.record import write_atomic

    try:
        write_atomic(file, text)
    except OSError as error:
        raise RequestError(f"cannot write {file}: {error.strerror}; name another file") from None


def newest(outputs: Path) -> Path:
    """The sweep or run below an output folder that was begun last."""
    from tielab.record import RECORD_NAME

    folders = [path for kind in ("sweeps", "runs") for path in (outputs / kind).glob("*")]
    begun = [path for path in folders if next(path.rglob(RECORD_NAME), None) is not None]
    if not begun:
        raise RequestError(f"no sweep or run in {outputs}; name a folder, or train with python train.py")
    # The names begin with the time of the start.
    return max(begun, key=lambda path: path.name)


@main.command()
@click.argument("folders", nargs=-1, required=True, type=FOLDER)
@click.argument("study", type=FOLDER)
@click.option("--baseline", help="The arm that the others are compared with.")
def publish(folders: tuple[Path, ...], study: Path, baseline: str | None) -> None:
    """Copy the runs in or below FOLDERS into STUDY, with results.csv, tables and figures.

    \b
    python train.py experiments=controls
    tielab publish outputs/sweeps/X experiments/controls
    """
    from tielab.publish import RESULTS_NAME
    from tielab.publish import publish as write

    write(list(folders), study, baseline)
    click.echo(f"written: {study / RESULTS_NAME}")


@main.command()
@click.argument("folder", type=FOLDER)
def resume(folder: Path) -> None:
    """Finish the run or the sweep in FOLDER: unfinished jobs go on from their last checkpoints.

    Finished jobs are left alone, failed ones are tried again, missing ones are run. With a launcher of its
    own, a sweep is resumed by its command with resume=true.

    \b
    tielab resume outputs/sweeps/X
    tielab resume outputs/runs/X
    """
    from tielab.errors import INTERRUPTED
    from tielab.launch import interrupted_by_sigterm
    from tielab.resume import resume as go_on

    try:
        with interrupted_by_sigterm():
            status = go_on(folder)
        sys.exit(status)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("run", type=FOLDER)
@click.argument("overrides", nargs=-1)
def rerun(run: Path, overrides: tuple[str, ...]) -> None:
    """Repeat RUN into a new folder, with optional key=value OVERRIDES, and say what differs.

    \b
    tielab rerun outputs/runs/X
    tielab rerun outputs/runs/X seed=1
    """
    from tielab.rerun import rerun as repeat

    sys.exit(repeat(run, overrides))


@main.command()
@click.argument("run", type=FOLDER)
@click.option("--prompt", required=True, help="Text to continue.")
@click.option("--tokens", "num_tokens", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--greedy", is_flag=True, help="Take the most likely id each time.")
@click.option("--temperature", default=1.0, show_default=True, type=float)
@click.option("--top-k", type=int, help="Draw from the k most likely ids.")
@click.option("--top-p", type=float, help="Draw from the fewest ids with at least this probability.")
@click.option("--seed", default=0, show_default=True, type=int)
@click.option("--checkpoint", default="best", show_default=True, help="best, last, or a file.")
def sample(run: Path, prompt: str, num_tokens: int, seed: int, checkpoint: str, **how: Any) -> None:
    """Continue a prompt with the model that RUN trained.

    \b
    tielab sample outputs/runs/X --prompt "The city" --top-k 50
    """
    from tielab.sample import continue_text, load_run

    model, tokenizer = load_run(run, checkpoint)
    text = continue_text(model, tokenizer, prompt, num_tokens, seed, **how)
    # The pieces of a stranger's tokenizer may be escapes.
    click.echo(prompt + printable(text.replace("\r\n", "\n"), keep="\n\t"))


@main.command()
@click.argument("folders", nargs=-1, required=True, type=FOLDER)
@click.option(
    "--ceiling",
    "ceilings",
    multiple=True,
    type=FOLDER,
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
def align(
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
    from tielab.alignment.pair import align_pair
    from tielab.alignment.render import show
    from tielab.alignment.sweep import align_sweep
    from tielab.record import RECORD_NAME

    if len(folders) > 2:
        raise RequestError(f"align takes one folder or two runs, found {len(folders)}; name two runs")
    is_sweep = len(folders) == 1 and not (folders[0] / RECORD_NAME).is_file()
    if is_sweep and ceilings:
        raise RequestError(f"--ceiling is for two runs, {folders[0]} is a folder of them; leave it out")
    results = (
        align_sweep(folders[0], checkpoint, min_count)
        if is_sweep
        else align_pair(folders[0], folders[-1], ceilings, checkpoint, min_count)
    )
    if csv_file is not None and _wrote_csv(show(results, "csv") or "", csv_file):
        return
    click.echo(show(results, format or "auto") or "", nl=False)


if __name__ == "__main__":
    main()
