"""Bits per byte against learning rate, from the runs that only tune."""

from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from tielab.report.plots.panel import Panel, Plot, at_most
from tielab.report.plots.style import ArmStyle, log_ticks, plain_ticks
from tielab.report.wording import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tielab.report.rates import RateCurve


def rates_plot(curves: "list[RateCurve]", styles: dict[str, ArmStyle]) -> Plot | None:
    """A panel per setting with every arm's curve, its best rate and its basin; None without curves."""
    if not curves:
        return None
    settings: dict[str, list[RateCurve]] = {}
    for curve in curves:
        settings.setdefault(label(curve.values), []).append(curve)
    panels = [
        Panel(name or "Learning rate", partial(_draw, curves=own, styles=styles))
        for name, own in settings.items()
    ]
    panels, omitted = at_most(panels)
    at_edge = [
        f"{', '.join(filter(None, (label(curve.values), curve.arm)))}"
        for curve in curves
        if curve.is_known and not curve.interior
    ]
    caption = (
        "Mean over the tuning seeds, bars from lowest to highest. Ringed: the best rate. Shaded: rates "
        f"within 0.01 nats of it.{omitted}"
    )
    if any(curve.diverged for curve in curves):
        caption += " Crosses at the top: a run diverged at this rate."
    if at_edge:
        caption += f" The best rate is the lowest or highest one tried for: {'; '.join(at_edge)}."
    return Plot("learning_rates", "Learning rates", caption, panels, styles)


def _draw(axes: "Axes", curves: "list[RateCurve]", styles: dict[str, ArmStyle]) -> None:
    for curve in curves:
        style = styles[curve.arm]
        axes.plot(
            curve.diverged, [0.97] * len(curve.diverged), "x", color=style.colour,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
        if not curve.is_known:
            continue
        finite = {rate: values for rate, values in curve.points.items() if rate not in curve.diverged}
        seeds = [list(values.values()) for values in finite.values()]
        means = [fmean(values) for values in seeds]
        below = [mean - min(values) for mean, values in zip(means, seeds, strict=True)]
        above = [max(values) - mean for mean, values in zip(means, seeds, strict=True)]
        axes.axvspan(curve.basin_low, curve.basin_high, color=style.colour, alpha=0.12, lw=0)
        axes.errorbar(
            list(finite), means, yerr=(below, above), marker=style.marker, capsize=2, elinewidth=1,
            **style.line(),
        )  # fmt: skip
        best = fmean(curve.points[curve.best].values())
        axes.plot(curve.best, best, "o", markersize=11, markerfacecolor="none", color=style.colour)
    axes.set_xscale("log")
    log_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)
    axes.set_xlabel("learning rate")
    axes.set_ylabel("bits per byte")
