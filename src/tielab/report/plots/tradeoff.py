"""What an arm reaches for its size and work, and what it costs in time and memory."""

from collections.abc import Callable
from functools import partial
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, NamedTuple

from tielab.record import Record
from tielab.report.groups import Group
from tielab.report.pairing import bits_per_byte, lookup
from tielab.report.plots.panel import Panel, Plot, hint
from tielab.report.plots.rows import label_rows, offsets, rows_height
from tielab.report.plots.style import ArmStyle, log_ticks, number_text, plain_ticks
from tielab.report.wording import MIB, bits_text, count_text, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Quantity = Callable[[Record], float | None]
Measurements = dict[str, list[float]]
"""Of one setting, by arm, a value per seed."""


class Point(NamedTuple):
    """An arm in one setting."""

    arm: str
    setting: str
    x: float
    mean: float
    sd: float | None


def parameters(record: Record) -> float | None:
    """Unique parameters in total."""
    return record.parameters.get("total")


def train_flops(record: Record) -> float | None:
    """Floating-point operations of the whole training."""
    per_token = record.flops_per_token.get("train")
    return None if per_token is None or record.tokens_seen is None else per_token * record.tokens_seen


def tradeoff_plot(groups: list[Group], styles: dict[str, ArmStyle]) -> Plot | None:
    """Bits per byte against parameters and against training FLOPs; None if no record has either."""
    panels = []
    for title, axis, quantity in (
        ("Against parameters", "parameters in total", parameters),
        ("Against training FLOPs", "floating-point operations of the training", train_flops),
    ):
        points = points_of(groups, quantity)
        if points:
            panels.append(Panel(title, partial(_draw_points, points=points, styles=styles, axis=axis)))
    if not panels:
        return None
    caption = (
        "A mark per setting and arm: mean over the seeds, bars of one standard deviation. Lines: the lowest "
        "bits per byte that an arm reaches at or below that size. Bits per byte of different vocabularies "
        "may be compared, on one text."
    )
    return Plot("bits_per_byte_against_size", "Bits per byte against size", caption, panels, styles)


def points_of(groups: list[Group], quantity: Quantity) -> list[Point]:
    """A point per setting and arm whose records all give the positive quantity, averaged over seeds."""
    points = []
    for group in groups:
        for arm, runs in group.arms.items():
            records = [run.record for run in runs.values()]
            sizes = [size for record in records if (size := quantity(record))]
            if records and len(sizes) == len(records):
                bits = [bits_per_byte(record) for record in records]
                sd = stdev(bits) if len(bits) > 1 else None
                points.append(Point(arm, label(group.values), fmean(sizes), fmean(bits), sd))
    return points


def frontier(points: list[Point]) -> list[Point]:
    """The points that no point of at most their size undercuts, by size."""
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (point.x, point.mean)):
        if not best or point.mean < best[-1].mean:
            best.append(point)
    return best


def _draw_points(axes: "Axes", points: list[Point], styles: dict[str, ArmStyle], axis: str) -> None:
    for arm, style in styles.items():
        own = [point for point in points if point.arm == arm]
        edge = frontier(own)
        axes.plot([p.x for p in edge], [p.mean for p in edge], lw=0.9, drawstyle="steps-post", **style.line())
        for point in own:
            bars = axes.errorbar(
                point.x, point.mean, yerr=point.sd, capsize=2, elinewidth=1, **style.points()
            )
            name = ", ".join(part for part in (point.setting, arm) if part)
            hint(bars.lines[0], f"{name}: {bits_text(point.mean, point.sd)} at {number_text(point.x)}")
    axes.set_xscale("log")
    axes.margins(x=0.08)
    log_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)
    axes.set_xlabel(axis)
    axes.set_ylabel("bits per byte")


def speed(record: Record) -> float | None:
    """Median training tokens per second."""
    value = lookup(record, "throughput.median")
    return None if value is None else float(value)


def memory(record: Record) -> float | None:
    """Peak memory in MiB."""
    return None if record.peak_memory_bytes is None else record.peak_memory_bytes / MIB


def cost_plot(groups: list[Group], styles: dict[str, ArmStyle]) -> Plot | None:
    """Throughput and memory of every setting and arm; None if no run measured them."""
    panels = []
    for title, axis, quantity in (
        ("Throughput", "training tokens per second", speed),
        ("Memory", "peak MiB", memory),
    ):
        values = _measured(groups, quantity)
        if any(values):
            rows = [label(group.values) for group in groups]
            draw = partial(_draw_costs, rows=rows, values=values, styles=styles, axis=axis)
            panels.append(Panel(title, draw, height=rows_height(len(rows), len(styles))))
    if not panels:
        return None
    caption = (
        "Mark: median over the seeds; bar: lowest to highest. Measured while the runs were made: other work "
        "on the machine is in it."
    )
    return Plot("throughput_and_memory", "Throughput and memory", caption, panels, styles)


def _measured(groups: list[Group], quantity: Quantity) -> list[Measurements]:
    """Per setting the arms with at least one measurement."""
    settings = []
    for group in groups:
        arms = {
            arm: [value for run in runs.values() if (value := quantity(run.record)) is not None]
            for arm, runs in group.arms.items()
        }
        settings.append({arm: values for arm, values in arms.items() if values})
    return settings


def _draw_costs(
    axes: "Axes",
    rows: list[str],
    values: list[dict[str, list[float]]],
    styles: dict[str, ArmStyle],
    axis: str,
) -> None:
    shift = offsets(list(styles))
    for row, arms in enumerate(values):
        for arm, measured in arms.items():
            style, y = styles[arm], row + shift[arm]
            axes.plot([min(measured), max(measured)], [y, y], color=style.colour, lw=1.2)
            (mark,) = axes.plot(median(measured), y, **style.points())
            hint(mark, f"{', '.join(filter(None, (rows[row], arm)))}: {count_text(median(measured))} {axis}")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.06)
    axes.set_xlim(left=0)
    plain_ticks(axes.xaxis)
    axes.set_xlabel(axis)
    label_rows(axes, rows)
