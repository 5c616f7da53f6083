"""``tielab report``: the table, the page and the figures of runs."""

from pathlib import Path

import click

from tielab.commands.files import FOLDER, RUN_OR_SWEEP, write_file, wrote_csv
from tielab.errors import RequestError
from tielab.waiting import busy


@click.command("report")
@click.argument("folders", nargs=-1, type=RUN_OR_SWEEP)
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
def command(
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
    with busy("reading the runs"):
        collected = collect_runs(chosen)
    with busy(f"comparing {len(collected.runs)} runs"):
        comparison = compare(collected, baseline)
    if html_file is not None:
        from tielab.report.html import page

        with busy("drawing the page"):
            html = page(comparison)
        write_file(html, html_file)
        click.echo(f"written: {html_file}", err=True)
    if figures is not None:
        from tielab.report.figures import write_figures

        with busy("drawing the figures"):
            write_figures(comparison, figures)
        click.echo(f"written: {figures}", err=True)
    for file, text in ((csv_file, to_csv), (runs_file, to_runs_csv)):
        if file is not None and wrote_csv(text(comparison), file):
            return
    click.echo(show(comparison, format or "auto") or "", nl=False)


def newest(outputs: Path) -> Path:
    """The sweep or run below an output folder that was begun last."""
    from tielab.record import RECORD_NAME

    folders = [path for kind in ("sweeps", "runs") for path in (outputs / kind).glob("*")]
    begun = [path for path in folders if next(path.rglob(RECORD_NAME), None) is not None]
    if not begun:
        raise RequestError(f"no sweep or run in {outputs}; name a folder, or train with python train.py")
    # The names begin with the time of the start.
    return max(begun, key=lambda path: path.name)
