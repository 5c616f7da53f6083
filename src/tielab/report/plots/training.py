"""Loss against training tokens, from the ``metrics.csv`` beside each record."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tielab.record import METRICS_NAME
from tielab.report.collect import CollectedRun
from tielab.report.groups import Group
from tielab.report.plots.panel import Panel, Plot, at_most
from tielab.report.plots.style import ArmStyle, log_ticks, plain_ticks
from tielab.report.wording import label, one_line

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes

TRAIN, VALIDATION = "train/loss", "val/loss"
METRICS = ("tokens", TRAIN, VALIDATION)
NUM_POINTS = 200
"""Of a drawn line; a run logs any number of rows."""
SMOOTHED_ROWS = 20
"""A line is averaged over one part in so many of its rows."""

SHOWN_WHOLE_FROM = 0.1
"""Of the training; earlier losses may lie above the panel."""


@dataclass(frozen=True)
class Band:
    """One metric of one arm over its seeds, against training tokens."""

    tokens: "np.ndarray"
    mean: "np.ndarray"
    low: "np.ndarray"
    """The lowest of the seeds; ``high`` the highest."""
    high: "np.ndarray"


def loss_plot(groups: list[Group], styles: dict[str, ArmStyle]) -> Plot | None:
    """A panel per setting with training and validation loss of every arm; None if no run has metrics."""
    panels: list[Panel] = []
    missing: list[str] = []
    for group in groups:
        bands = {arm: _bands(list(runs.values()), missing) for arm, runs in group.arms.items()}
        bands = {arm: found for arm, found in bands.items() if found}
        if bands:
            panels.append(Panel(label(group.values) or "Loss", partial(_draw, bands=bands, styles=styles)))
    if not panels:
        return None
    panels, omitted = at_most(panels)
    caption = (
        "Lines: training loss, smoothed, mean over the seeds. Marks: loss on the whole validation split. "
        "Bands and bars: lowest to highest seed. The first tenth of a training may lie above its panel. "
        f"Nats per token compare within one panel only.{omitted}"
    )
    if missing:
        caption += f" Without a readable {METRICS_NAME}: {', '.join(missing)}."
    return Plot("loss_against_tokens", "Loss against tokens", caption, panels, styles)


def metrics_of(folder: Path) -> "pd.DataFrame | None":
    """The run's metrics as numbers, an unreadable cell as NaN; None if there is no such table."""
    import pandas as pd

    try:
        table: pd.DataFrame = pd.read_csv(folder / METRICS_NAME)
    except (OSError, ValueError):  # of which the parser's and the decoder's errors are kinds
        return None
    if not set(METRICS) <= set(table.columns):
        return None
    return pd.DataFrame({name: pd.to_numeric(table[name], errors="coerce") for name in METRICS})


def _bands(runs: list[CollectedRun], missing: list[str]) -> dict[str, Band]:
    """By metric; the runs without a table are added to ``missing``."""
    tables = []
    for run in runs:
        table = metrics_of(run.folder)
        if table is None:
            missing.append(one_line(str(run.folder)))
        else:
            tables.append(table)
    found = {metric: band(tables, metric) for metric in (TRAIN, VALIDATION)}
    return {metric: one for metric, one in found.items() if one is not None}


def band(tables: "list[pd.DataFrame]", metric: str) -> Band | None:
    """Mean and range of a metric over tables of one run each; None if no table has a value.

    Training loss is smoothed by a moving mean and drawn through at most ``NUM_POINTS`` counts of
    tokens; validations are few and stay as they are.
    """
    import numpy as np

    curves = [table[["tokens", metric]].dropna() for table in tables]
    curves = [curve[curve["tokens"] > 0].drop_duplicates("tokens", keep="last") for curve in curves]
    curves = [curve.sort_values("tokens") for curve in curves if len(curve)]
    if not curves:
        return None
    if metric == TRAIN:
        curves = [c.assign(**{TRAIN: _smoothed(c[TRAIN])}) for c in curves]
    tokens = np.unique(np.concatenate([curve["tokens"].to_numpy() for curve in curves]))
    if len(tokens) > NUM_POINTS:
        tokens = np.geomspace(tokens[0], tokens[-1], NUM_POINTS)
    # Only where every seed has been: a mean over fewer seeds would jump where one ends.
    first = max(curve["tokens"].iloc[0] for curve in curves)
    last = min(curve["tokens"].iloc[-1] for curve in curves)
    tokens = tokens[(tokens >= first) & (tokens <= last)]
    if not len(tokens):
        return None
    values = np.stack([np.interp(tokens, curve["tokens"], curve[metric]) for curve in curves])
    return Band(tokens, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def _smoothed(losses: "pd.Series") -> "pd.Series":
    return losses.rolling(max(1, len(losses) // SMOOTHED_ROWS), min_periods=1).mean()


def _draw(axes: "Axes", bands: dict[str, dict[str, Band]], styles: dict[str, ArmStyle]) -> None:
    for arm, metrics in bands.items():
        style = styles[arm]
        if TRAIN in metrics:
            line = metrics[TRAIN]
            axes.plot(line.tokens, line.mean, **style.line())
            axes.fill_between(line.tokens, line.low, line.high, color=style.colour, alpha=0.18, linewidth=0)
        if VALIDATION in metrics:
            marks = metrics[VALIDATION]
            bars = (marks.mean - marks.low, marks.high - marks.mean)
            axes.errorbar(
                marks.tokens, marks.mean, yerr=bars, mfc="white", capsize=2, elinewidth=1, **style.points()
            )
    axes.set_xscale("log")
    _zoom(axes, [line for metrics in bands.values() for line in metrics.values()])
    log_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)
    axes.set_xlabel("training tokens")
    axes.set_ylabel("nats per token")


def _zoom(axes: "Axes", lines: list[Band]) -> None:
    """Let the losses after the first part of the training fill the panel: before it all arms fall alike."""
    import numpy as np

    start = SHOWN_WHOLE_FROM * max(line.tokens[-1] for line in lines)
    highest = max(np.max(line.high[line.tokens >= start], initial=-np.inf) for line in lines)
    lowest = min(np.min(line.low) for line in lines)
    if highest > lowest:
        margin = 0.08 * (highest - lowest)
        axes.set_ylim(lowest - margin, highest + margin)
