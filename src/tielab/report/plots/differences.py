"""How much an arm differs from its reference: over vocabulary and width, and as a forest of intervals."""

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tielab.report.groups import Group
from tielab.report.pairing import PairedDifference
from tielab.report.plots.panel import Panel, Plot, at_most, hint
from tielab.report.plots.rows import label_rows, offsets, rows_height
from tielab.report.plots.style import BLUE, GREY, PALE_GREY, VERMILLION, ArmStyle, plain_ticks
from tielab.report.settings import sort_key
from tielab.report.wording import difference_name, difference_sentence, difference_text, label, labelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACROSS, UP = "vocab_size", "embed_dim"
AXES = {ACROSS: "vocabulary size", UP: "width"}
UNIT = "bits per byte"
CELL_WIDTH, CELL_HEIGHT = 1.25, 0.62
"""Inches: room for a number and its interval below it."""


@dataclass(frozen=True)
class Cell:
    """An arm's difference from its reference in one setting."""

    values: dict[str, Any]
    arm: str
    difference: PairedDifference

    @property
    def contrast(self) -> str:
        """The arm less its reference, in words."""
        return difference_name(self.difference)

    @property
    def claimed(self) -> bool:
        """Whether a difference is claimed: the verdict calls one of the two better."""
        return self.difference.verdict.endswith("better")

    def value(self, name: str) -> Any:
        return self.values.get(name)


def cells_of(groups: list[Group]) -> list[Cell]:
    """Every difference of the comparison, setting by setting."""
    return [
        Cell(group.values, arm, entry.difference)
        for group in groups
        for arm, entry in group.differences.items()
    ]


def grid_plot(cells: list[Cell], styles: dict[str, ArmStyle]) -> Plot | None:
    """The differences over vocabulary and width: heat maps if both vary, lines if one does, else None."""
    varying = [name for name in AXES if len({json.dumps(cell.value(name)) for cell in cells}) > 1]
    if len(varying) == 2:
        return _heat_maps(cells)
    return _lines(cells, varying[0], styles) if varying else None


def forest_plot(cells: list[Cell], styles: dict[str, ArmStyle]) -> Plot | None:
    """A panel per contrast, a row per setting, with interval and equivalence band; None without cells."""
    if not cells:
        return None
    contrasts: dict[str, list[Cell]] = {}
    for cell in cells:
        contrasts.setdefault(cell.contrast, []).append(cell)
    panels = [
        Panel(contrast, partial(_draw_forest, cells=own, styles=styles), height=rows_height(len(own), 1))
        for contrast, own in contrasts.items()
    ]
    caption = (
        "Mean of the paired differences with its 95 % interval; left of zero the arm predicts better than "
        "its reference. Hollow: no difference is claimed. Grey: within 0.5 % of perplexity, equivalent."
    )
    return Plot("paired_differences", "Paired differences", caption, panels)


def _apart(cells: list[Cell], names: list[str]) -> dict[str, list[Cell]]:
    """The cells by contrast and by the settings other than the named ones, under a title for each."""
    parts: dict[str, list[Cell]] = {}
    for cell in cells:
        rest = {name: value for name, value in cell.values.items() if name not in names}
        parts.setdefault(", ".join(filter(None, (cell.contrast, label(rest)))), []).append(cell)
    return parts


def _heat_maps(cells: list[Cell]) -> Plot:
    largest = max(abs(cell.difference.mean) for cell in cells) or 1.0
    panels = []
    for title, own in _apart(cells, list(AXES)).items():
        columns, rows = _sorted_values(own, ACROSS), _sorted_values(own, UP)
        draw = partial(_draw_heat_map, cells=own, columns=columns, rows=rows, largest=largest)
        size = (0.9 + CELL_WIDTH * len(columns), 0.9 + CELL_HEIGHT * len(rows))
        panels.append(Panel(title, draw, *size))
    panels, omitted = at_most(panels)
    caption = (
        "Difference in bits per byte with its 95 % interval below. Blue, below zero: the arm predicts better "
        "than its reference; orange, above zero: worse. Grey and hatched: no difference is claimed, as in "
        f"the verdicts above.{omitted}"
    )
    return Plot("difference_by_vocabulary_and_width", "Difference by vocabulary and width", caption, panels)


def _sorted_values(cells: list[Cell], name: str) -> list[Any]:
    """The values of a setting column, each once, in the order of the table."""
    values = {json.dumps(cell.value(name)): cell.value(name) for cell in cells}
    return sorted(values.values(), key=lambda value: sort_key([value]))


def _shade(value: float, largest: float) -> tuple[float, float, float]:
    """White at zero, towards blue below and vermillion above, never so dark that black text is lost."""
    from matplotlib.colors import to_rgb

    share = 0.65 * min(1.0, abs(value) / largest)
    red, green, blue = to_rgb(BLUE if value < 0 else VERMILLION)
    return (1 - share * (1 - red), 1 - share * (1 - green), 1 - share * (1 - blue))


def _draw_heat_map(
    axes: "Axes", cells: list[Cell], columns: list[Any], rows: list[Any], largest: float
) -> None:
    from matplotlib.patches import Rectangle

    for cell in cells:
        x, y = columns.index(cell.value(ACROSS)), rows.index(cell.value(UP))
        colour = _shade(cell.difference.mean, largest) if cell.claimed else PALE_GREY
        edge, hatch = ("white", None) if cell.claimed else ("#D4D4D4", "////")
        square = Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor=edge, hatch=hatch, lw=1)
        axes.add_patch(square)
        hint(square, f"{label(cell.values)}, {cell.contrast}: {difference_sentence(cell.difference)}")
        mean, interval = _cell_text(cell.difference)
        axes.text(x, y + 0.14, mean, ha="center", va="center", fontsize=9, weight="bold")
        axes.text(x, y - 0.22, interval, ha="center", va="center", fontsize=7)
    axes.grid(visible=False)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.set_xticks(range(len(columns)), [str(value) for value in columns])
    axes.set_yticks(range(len(rows)), [str(value) for value in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(AXES[ACROSS])
    axes.set_ylabel(AXES[UP])


def _cell_text(difference: PairedDifference) -> tuple[str, str]:
    if difference.low is None or difference.high is None:
        return difference_text(difference.mean), "one seed"
    bounds = f"{difference_text(difference.low)} to {difference_text(difference.high)}"
    return difference_text(difference.mean), bounds


def _lines(cells: list[Cell], name: str, styles: dict[str, ArmStyle]) -> Plot:
    """A panel per contrast and remaining setting, with a mark and an interval for each value."""
    panels = [
        Panel(title, partial(_draw_line, cells=own, name=name, style=styles[own[0].arm]))
        for title, own in _apart(cells, [name]).items()
    ]
    panels, omitted = at_most(panels)
    caption = (
        "Mean of the paired differences with its 95 % interval; below zero the arm predicts better than its "
        f"reference. Hollow: no difference is claimed. Grey: within 0.5 % of perplexity, equivalent.{omitted}"
    )
    title = f"Difference by {AXES[name]}"
    return Plot(title.lower().replace(" ", "_"), title, caption, panels)


def _draw_line(axes: "Axes", cells: list[Cell], name: str, style: ArmStyle) -> None:
    values = _sorted_values(cells, name)
    axes.axhline(0, color=GREY, lw=1)
    for cell in cells:
        x, one = values.index(cell.value(name)), cell.difference
        _band(axes, (x - 0.4, x + 0.4), (-one.band, one.band))
        if one.low is not None and one.high is not None:
            axes.plot([x, x], [one.low, one.high], color=style.colour)
        face = style.colour if cell.claimed else "white"
        (mark,) = axes.plot(x, one.mean, **style.points(), mfc=face)
        hint(mark, f"{label(cell.values)}: {difference_sentence(one)}")
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xticks(range(len(values)), [str(value) for value in values])
    plain_ticks(axes.yaxis)
    axes.set_xlabel(AXES[name])
    axes.set_ylabel(f"difference in {UNIT}")


def _band(axes: "Axes", across: tuple[float, float], up: tuple[float, float]) -> None:
    """The equivalence band of one difference."""
    axes.fill_between(across, up[0], up[1], color="#D9D9D9", lw=0, zorder=0.5)


def _draw_forest(axes: "Axes", cells: list[Cell], styles: dict[str, ArmStyle]) -> None:
    axes.axvline(0, color=GREY, lw=1)
    (below,) = offsets([""]).values()
    for row, cell in enumerate(cells):
        style, one, y = styles[cell.arm], cell.difference, row + below
        _band(axes, (-one.band, one.band), (y - 0.15, y + 0.15))
        if one.low is not None and one.high is not None:
            axes.plot([one.low, one.high], [y, y], color=style.colour)
        (mark,) = axes.plot(one.mean, y, **style.points(), mfc=style.colour if cell.claimed else "white")
        hint(mark, labelled(cell.values, difference_sentence(one)))
    axes.grid(visible=False, axis="y")
    plain_ticks(axes.xaxis)
    axes.set_xlabel(f"difference in {UNIT}")
    label_rows(axes, [label(cell.values) for cell in cells])
