"""A comparison as one HTML page that needs no network: the verdict first, then what it rests on."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tielab.record import RUN_CONFIG_NAME
from tielab.report.columns import Column, columns_of, legend
from tielab.report.compare import Comparison
from tielab.report.figures import plots_of, styles_of
from tielab.report.plots.diagnostics import Key, Spread, measured
from tielab.report.plots.differences import Cell, cells_of
from tielab.report.plots.panel import Plot, panel_svg, swatch_svg
from tielab.report.render import nothing
from tielab.report.runs import runs_table
from tielab.report.wording import one_line

TEMPLATE, STYLE_SHEET = "page.html.jinja", "page.css"
WIDE = 4.7
"""Inches: a panel that is wider scrolls in a box of its own on a phone instead of becoming illegible."""
LISTED = 8
"""More verdicts are folded away behind their summary, and more notes behind these."""


@dataclass(frozen=True)
class Cells:
    """A table as the template writes it."""

    label: str
    """What a screen reader calls it."""
    columns: list[Column]

    def rows(self) -> range:
        return range(len(self.columns[0].cells) if self.columns else 0)


@dataclass(frozen=True)
class Figure:
    """A plot as the template writes it; the SVG texts are safe, matplotlib and the parser escaped them."""

    name: str
    title: str
    caption: str
    panels: list[tuple[str, bool]]
    """SVG, and whether it is wide."""
    arms: list[tuple[str, str]] = field(default_factory=list)
    """Name and swatch."""


@dataclass(frozen=True)
class DiagnosticTable:
    """One diagnostic: a row per quantity, a column per setting and arm."""

    name: str
    settings: list[str]
    arms: list[str]
    rows: list[tuple[str, list[str]]]


def page(comparison: Comparison) -> str:
    """The page's text: the same for the same records, complete in itself, every foreign word escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    # Of "95 %" neither half stands alone at the end of a line.
    environment.filters["unbroken"] = lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%")
    return environment.get_template(TEMPLATE).render(
        style_sheet=Markup((here / STYLE_SHEET).read_text(encoding="utf-8")),
        when=_when(comparison),
        comparison=comparison,
        summary=summary(cells_of(comparison.groups)),
        listed=LISTED,
        nothing=nothing(comparison),
        results=_table(comparison, "Results", lambda column: column.kind != "check"),
        checks=_table(comparison, "Checks", lambda column: column.kind in ("setting", "check")),
        legend=legend(comparison, "bold"),
        figures=[_figure(plot) for plot in plots_of(comparison)],
        diagnostics=diagnostic_tables(comparison),
        fixed={name: _text(value) for name, value in comparison.fixed.items()},
        runs=runs_of(comparison),
    )


def _table(comparison: Comparison, label: str, wanted: Callable[[Column], bool]) -> Cells | None:
    """The wanted columns of the comparison's table; None if they say nothing but which row it is."""
    columns = [] if comparison.table.empty else [c for c in columns_of(comparison) if wanted(c)]
    return Cells(label, columns) if any(column.kind != "setting" for column in columns) else None


def summary(cells: list[Cell]) -> list[str]:
    """For each contrast in several settings how often it came out how; none for a single setting."""
    contrasts: dict[str, list[str]] = {}
    for cell in cells:
        contrasts.setdefault(cell.contrast, []).append(cell.difference.verdict)
    return [
        f"{contrast}, {len(verdicts)} settings: "
        + "; ".join(f"{verdict} in {count}" for verdict, count in Counter(verdicts).most_common())
        for contrast, verdicts in contrasts.items()
        if len(verdicts) > 1
    ]


def _when(comparison: Comparison) -> str:
    """The first and the last day on which a run started: a page has no other date."""
    runs = [run for group in comparison.groups for arm in group.arms.values() for run in arm.values()]
    days = sorted({run.record.started_at[:10] for run in runs if run.record.started_at})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""


def _figure(plot: Plot) -> Figure:
    from markupsafe import Markup

    panels: list[tuple[str, bool]] = []
    for i, panel in enumerate(plot.panels):
        svg = panel_svg(panel, f"{plot.name}-{i}", f"{plot.title}: {panel.title}")
        panels.append((Markup(svg), panel.width > WIDE))
    arms: list[tuple[str, str]] = []
    for i, (arm, style) in enumerate(plot.arms.items()):
        arms.append((arm, Markup(swatch_svg(style, f"{plot.name}-arm{i}"))))
    return Figure(plot.name, plot.title, plot.caption, panels, arms)


def diagnostic_tables(comparison: Comparison) -> list[DiagnosticTable]:
    """The scalars of every diagnostic, mean and standard deviation over the seeds."""
    scalars = measured(comparison.groups).scalars
    arms = list(styles_of(comparison))
    return [_diagnostic(name, scalars, arms) for name in dict.fromkeys(name for name, _, _ in scalars)]


def _diagnostic(name: str, scalars: dict[Key, dict[str, Spread]], arms: list[str]) -> DiagnosticTable:
    own = {key: values for key, values in scalars.items() if key[0] == name}
    settings = list(dict.fromkeys(setting for _, _, setting in own))
    present = [arm for arm in arms if any(arm in values for values in own.values())]
    rows = [
        (
            quantity,
            [_spread_text(own.get((name, quantity, s), {}).get(arm)) for s in settings for arm in present],
        )
        for quantity in dict.fromkeys(quantity for _, quantity, _ in own)
    ]
    return DiagnosticTable(name, settings, present, rows)


def _spread_text(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{spread.mean:.4g}" if spread.sd is None else f"{spread.mean:.4g} ± {spread.sd:.2g}"


def runs_of(comparison: Comparison) -> Cells:
    """Every run that was used, the commands that repeat it, and what it is recognised by."""
    table = runs_table(comparison)
    names = [*comparison.setting_columns, "arm", "seed", "phase"]
    columns = [Column(name, _texts(table[name]), "setting") for name in names if table[name].notna().any()]
    folders = [one_line(str(folder)) for folder in table["folder"]]
    commands = [f"tielab rerun {shlex.quote(folder)}" for folder in folders]
    trainings = [
        f"python train.py --config-dir {shlex.quote(folder)} --config-name {Path(RUN_CONFIG_NAME).stem}"
        for folder in folders
    ]
    columns += [Column("repeat and compare", commands, "command"), Column("train anew", trainings, "command")]
    for name in ("run_id", "config_hash", "weights_hash", "code_hash", "commit"):
        columns.append(Column(name, _texts(table[name]), "command"))
    return Cells("Runs", columns)


def _texts(values: Iterable[Any]) -> list[str]:
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    """One printable line; nothing for what is not known."""
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    return one_line(str(value))
