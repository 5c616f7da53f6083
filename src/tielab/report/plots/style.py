"""How every figure looks: colours that colour-blind readers tell apart, marks that survive grey print."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axis import Axis

BLUE, VERMILLION = "#0072B2", "#D55E00"
GREY, PALE_GREY = "#666666", "#EBEBEB"
OTHER_COLOURS = ("#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""With the two above the palette of Okabe and Ito (2008), less its yellow, which is lost on white."""
OTHER_MARKERS = ("^", "D", "v", "P", "X", "*")
OTHER_DASHES = (
    (0.0, (5.0, 1.0, 1.0, 1.0)), (0.0, (1.0, 1.0)), (0.0, (5.0, 1.0, 1.0, 1.0, 1.0, 1.0)), (0.0, (8.0, 2.0)),
)  # fmt: skip
"""As many colours, markers and dashes as have no common divisor: 60 arms before one looks like another."""

LOG_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))

RC: Any = {
    "font.size": 9.0,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.0,
    "hatch.linewidth": 0.6,
    # A name from somebody's record may hold a dollar sign; it is no formula.
    "text.parse_math": False,
    # Text stays text: it can be searched, selected and read aloud, and a reader's own font is narrower than
    # the one the layout was computed with.
    "svg.fonttype": "none",
    # TrueType, which journals accept; Type 3 is often refused.
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class ArmStyle:
    """How an arm is drawn in every figure of a comparison."""

    colour: str
    marker: str
    dashes: Any
    """A line style of matplotlib."""

    def line(self) -> dict[str, Any]:
        """Keywords of a line without markers."""
        return {"color": self.colour, "linestyle": self.dashes}

    def points(self) -> dict[str, Any]:
        """Keywords of markers without a line."""
        return {"color": self.colour, "marker": self.marker, "linestyle": "none"}


def arm_styles(arms: Iterable[str]) -> dict[str, ArmStyle]:
    """A style per arm, told apart by colour, marker and line; the plain two always have the same ones."""
    plain = {"tied": ArmStyle(BLUE, "o", "-"), "untied": ArmStyle(VERMILLION, "s", "--")}
    others = zip(cycle(OTHER_COLOURS), cycle(OTHER_MARKERS), cycle(OTHER_DASHES), strict=False)
    return {arm: plain[arm] if arm in plain else ArmStyle(*next(others)) for arm in dict.fromkeys(arms)}


def number_text(value: float) -> str:
    """A tick's number, short: ``0.003``, ``65k``, ``1.2M``, ``3.5e15``."""
    if value == 0 or 1e-4 <= abs(value) < 1e4:
        return f"{value:.4g}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e12:
            return f"{value / size:.3g}{letter}"
    return f"{value:.2g}".replace("e+", "e")


def log_ticks(axis: "Axis") -> None:
    """At least three ticks of a logarithmic axis where it is long enough, with plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axis.get_view_interval()
    ticks: list[float] = []
    for steps in LOG_STEPS:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [tick for e in decades for step in steps if low <= (tick := step * 10.0**e) <= high]
        if len(ticks) >= 3:
            break
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))
    axis.set_minor_locator(NullLocator())


def plain_ticks(axis: "Axis") -> None:
    """At most six ticks with short numbers and no offset text."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))
