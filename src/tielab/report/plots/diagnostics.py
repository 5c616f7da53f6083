"""What the diagnostics measured: any record's, whatever their names, so that a new one needs no code here."""

import math
import re
from dataclasses import dataclass
from functools import partial
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from tielab.record import Record
from tielab.report.groups import Group
from tielab.report.pairing import lookup
from tielab.report.plots.panel import Panel, Plot, at_most
from tielab.report.plots.style import ArmStyle, plain_ticks
from tielab.report.wording import label, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Key = tuple[str, str, str]
"""Diagnostic, quantity, setting."""


@dataclass(frozen=True)
class Spread:
    """Mean over the seeds that have the number, and standard deviation where there are two."""

    mean: float
    sd: float | None
    n: int


@dataclass(frozen=True)
class Measured:
    """All diagnostics of a comparison, averaged over seeds."""

    scalars: dict[Key, dict[str, Spread]]
    """By arm."""
    curves: dict[Key, dict[str, list[Spread]]]
    """By arm, over the index of the list: the decile, the layer, the rank."""


def measured(groups: list[Group]) -> Measured:
    """The numbers and the lists of numbers of every diagnostic, per setting and arm."""
    scalars: dict[Key, dict[str, list[float]]] = {}
    curves: dict[Key, dict[str, list[list[float]]]] = {}
    for group in groups:
        for arm, runs in group.arms.items():
            for run in runs.values():
                for name, entry in _entries(run.record).items():
                    for quantity, value in _flat(entry, ""):
                        key = (one_line(name), one_line(quantity), label(group.values))
                        if isinstance(value, list):
                            curves.setdefault(key, {}).setdefault(arm, []).append(value)
                        else:
                            scalars.setdefault(key, {}).setdefault(arm, []).append(value)
    return Measured(
        {key: {arm: _spread(values) for arm, values in arms.items()} for key, arms in scalars.items()},
        {key: {arm: _spreads(lists) for arm, lists in arms.items()} for key, arms in curves.items()},
    )


def _entries(record: Record) -> dict[str, Any]:
    """What the record's diagnostics found; nothing in a record that has none."""
    found = lookup(record, "diagnostics")
    return found if isinstance(found, dict) else {}


def _flat(value: Any, name: str) -> list[tuple[str, Any]]:
    """Finite numbers and lists of them, with dotted names; nothing else can be averaged.

    In a list a number may be missing (a decile without rows): it becomes NaN.
    """
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in _flat(inner, f"{name}.{key}" if name else key)]
    if _is_number(value):
        return [(name, float(value))]
    if not isinstance(value, list) or not value:
        return []
    if all(inner is None or _is_number(inner) for inner in value):
        return [(name, [math.nan if inner is None else float(inner) for inner in value])]
    return [one for i, inner in enumerate(value) for one in _flat(inner, f"{name}[{i}]")]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _spread(values: list[float]) -> Spread:
    found = [value for value in values if not math.isnan(value)]
    mean = fmean(found) if found else math.nan
    return Spread(mean, stdev(found) if len(found) > 1 else None, len(found))


def _spreads(lists: list[list[float]]) -> list[Spread]:
    """At each index that every seed has."""
    return [_spread(list(values)) for values in zip(*lists, strict=False)]


def diagnostics_plots(found: Measured, styles: dict[str, ArmStyle]) -> list[Plot]:
    """A plot per diagnostic that has lists of numbers, with a panel per list and setting."""
    names = dict.fromkeys(name for name, _, _ in found.curves)
    return [_plot(name, f"diagnostic_{i}_{_plain(name)}", found, styles) for i, name in enumerate(names, 1)]


def _plot(name: str, file_name: str, found: Measured, styles: dict[str, ArmStyle]) -> Plot:
    quantities = list(dict.fromkeys(quantity for _, quantity, _ in found.curves))
    panels = [
        Panel(", ".join(filter(None, (quantity, setting))), partial(_draw, arms=arms, styles=styles))
        for (diagnostic, quantity, setting), arms in sorted(
            found.curves.items(), key=lambda item: quantities.index(item[0][1])
        )
        if diagnostic == name
    ]
    panels, omitted = at_most(panels)
    caption = (
        "Mean over the seeds at each index of the list (its deciles, layers, ranks), band of one standard "
        f"deviation.{omitted}"
    )
    return Plot(file_name, f"Diagnostic: {name}", caption, panels, styles)


def _plain(name: str) -> str:
    """The name as a part of a file's name; the number before it tells two of them apart."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60]


def _draw(axes: "Axes", arms: dict[str, list[Spread]], styles: dict[str, ArmStyle]) -> None:
    from matplotlib.ticker import MaxNLocator

    for arm, spreads in arms.items():
        style, index = styles[arm], range(1, len(spreads) + 1)
        axes.plot(index, [one.mean for one in spreads], marker=style.marker, ms=3.5, **style.line())
        low = [one.mean - (one.sd or 0.0) for one in spreads]
        high = [one.mean + (one.sd or 0.0) for one in spreads]
        axes.fill_between(index, low, high, color=style.colour, alpha=0.18, lw=0)
    axes.set_xlim(0.5, max(map(len, arms.values())) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    plain_ticks(axes.yaxis)
    axes.set_xlabel("index (first is 1)")
