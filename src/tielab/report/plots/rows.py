"""Plots with a row per setting: the label stands above its row, so that the row has the whole width."""

from typing import TYPE_CHECKING

from tielab.report.plots.style import PALE_GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABEL_HEIGHT, ARM_HEIGHT = 0.3, 0.13
"""Inches of a row."""
LETTERS = 60
"""Of a label that fits above its row."""


def rows_height(num_rows: int, num_arms: int) -> float:
    """Inches of a panel with so many rows, and so many marks below each other in a row."""
    return 0.8 + num_rows * (LABEL_HEIGHT + ARM_HEIGHT * num_arms)


def offsets(arms: list[str]) -> dict[str, float]:
    """Where in a row each arm's mark lies, below the label of the row, none upon another."""
    height = LABEL_HEIGHT + ARM_HEIGHT * len(arms)
    return {arm: (LABEL_HEIGHT + ARM_HEIGHT * i) / height for i, arm in enumerate(arms)}


def label_rows(axes: "Axes", rows: list[str]) -> None:
    """Rows 0 to 1, 1 to 2, ... from the top, each with its label at its top and a line above it."""
    axes.set_ylim(len(rows), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    for row, text in enumerate(rows):
        # A fraction across, rows down: the label stays at the left edge whatever the values are.
        label = axes.text(
            0.0, row + 0.06, _cut(text), transform=axes.get_yaxis_transform(), va="top", fontsize=8, zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
        )  # fmt: skip
        label.set_in_layout(False)
        if row:
            axes.axhline(row, color=PALE_GREY, lw=0.8, zorder=0)


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
