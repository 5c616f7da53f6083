"""A plot is some panels side by side; how one becomes SVG inside a page, and all of them a file."""

import io
import re
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tielab.report.plots.style import RC, ArmStyle

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
HINT = "hint:"
WIDTH, HEIGHT = 4.0, 3.0
"""Inches: on a phone's width letters of 9 points are still 10 pixels high."""
TITLE_LETTERS = 40
"""That fit above a panel of the usual width."""
TITLE_LINES = 3
"""A longer title is cut: it would leave no room for what it is the title of."""
MAX_PANELS = 12
FILE_COLUMNS = 3


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    draw: Callable[["Axes"], None]
    width: float = WIDTH
    """Inches."""
    height: float = HEIGHT


@dataclass(frozen=True)
class Plot:
    """Panels that share a caption and the styles of the arms."""

    name: str
    """Of its files, without the ending."""
    title: str
    caption: str
    panels: list[Panel]
    arms: dict[str, ArmStyle] = field(default_factory=dict)
    """What the legend shows; empty: there is none."""


def at_most(panels: list[Panel], limit: int = MAX_PANELS) -> tuple[list[Panel], str]:
    """The first panels, and a sentence that names the others; empty if there are none."""
    names = "; ".join(panel.title for panel in panels[limit:])
    return panels[:limit], f" Not drawn, for want of room: {names}." if names else ""


def hint(artist: "Artist", text: str) -> None:
    """Give an artist a text that a reader sees when the pointer rests on it."""
    artist.set_gid(HINT + text)


def panel_svg(panel: Panel, prefix: str, description: str) -> str:
    """The panel as an ``<svg>`` element for a page: no id without the prefix, nothing loaded from elsewhere.

    Args:
        prefix: Unique in the page; made of letters, digits, hyphens and underscores.
        description: What a screen reader says.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(RC):
        figure = Figure(figsize=(panel.width, panel.height), layout="constrained")
        _draw(panel, figure.subplots())
        _lay_out(figure)
        return _inline(_svg(figure, prefix), prefix, description)


def swatch_svg(style: ArmStyle, prefix: str) -> str:
    """An arm's line and marker as a small ``<svg>`` for a legend; the arm's name stands beside it."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(RC):
        figure = Figure(figsize=(0.5, 0.2))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.plot([0.0, 1.0, 2.0], [0.0, 0.0, 0.0], marker=style.marker, markevery=[1], **style.line())
        return _inline(_svg(figure, prefix), prefix, "")


def figure_files(plot: Plot, kinds: Iterable[str]) -> dict[str, bytes]:
    """The plot as a file of each kind, pdf or svg: equal bytes for equal plots."""
    from matplotlib import rc_context

    with rc_context(RC):
        figure = _whole(plot)
        return {kind: _file(figure, plot.name, kind) for kind in kinds}


def _file(figure: "Figure", name: str, kind: str) -> bytes:
    if kind == "svg":
        return ET.tostring(_cleaned(_svg(figure, name), name), encoding="unicode").encode()
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata={"CreationDate": None})
    return buffer.getvalue()


def _whole(plot: Plot) -> "Figure":
    """All panels and the legend in one figure, as a paper shows it."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = min(FILE_COLUMNS, len(plot.panels))
    rows = [plot.panels[start : start + columns] for start in range(0, len(plot.panels), columns)]
    heights = [max(panel.height for panel in row) for row in rows]
    widths = [max(row[i].width for row in rows if i < len(row)) for i in range(columns)]
    legend = 0.4 if plot.arms else 0.0
    figure = Figure(figsize=(sum(widths), sum(heights) + legend), layout="constrained")
    grid = figure.add_gridspec(len(rows), columns, width_ratios=widths, height_ratios=heights)
    for i, panel in enumerate(plot.panels):
        _draw(panel, figure.add_subplot(grid[i // columns, i % columns]))
    if plot.arms:
        handles = [Line2D([], [], marker=s.marker, label=arm, **s.line()) for arm, s in plot.arms.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=2 * columns, frameon=False)
    _lay_out(figure)
    return figure


def _lay_out(figure: "Figure") -> None:
    """Place everything once and for all: each saving would do it twice again."""
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)
    figure.set_layout_engine("none")


def _draw(panel: Panel, axes: "Axes") -> None:
    panel.draw(axes)
    letters = int(TITLE_LETTERS * panel.width / WIDTH)
    axes.set_title("\n".join(textwrap.wrap(panel.title, letters, max_lines=TITLE_LINES, placeholder=" …")))


def _svg(figure: "Figure", salt: str) -> ET.Element:
    from matplotlib import rc_context

    buffer = io.BytesIO()
    # The salt makes the ids of markers and clipping paths the same in every run, and a figure's own.
    with rc_context({"svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    # A parser of the standard library: the document is matplotlib's own, no stranger's.
    return ET.fromstring(buffer.getvalue())


def _cleaned(root: ET.Element, prefix: str) -> ET.Element:
    """Without metadata (it names web addresses), every id prefixed, every hint a ``<title>``."""
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    for number, element in enumerate(list(root.iter())):
        for name, value in list(element.attrib.items()):
            if name == "id" and value.startswith(HINT):
                element.set(name, f"{prefix}-hint{number}")
                title = ET.Element(f"{{{SVG}}}title")
                title.text = value.removeprefix(HINT)
                element.insert(0, title)
            elif name == "id":
                element.set(name, f"{prefix}-{value}")
            elif name == f"{{{XLINK}}}href":
                element.set(name, re.sub("^#", f"#{prefix}-", value))
            else:
                element.set(name, value.replace("url(#", f"url(#{prefix}-"))
    return root


def _inline(root: ET.Element, prefix: str, description: str) -> str:
    """The element without what only a file of its own needs: the page's style sheet has the rest."""
    root = _cleaned(root, prefix)
    for definitions in root.findall(f"{{{SVG}}}defs"):
        for style in definitions.findall(f"{{{SVG}}}style"):
            definitions.remove(style)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("style", f"--width: {root.get('viewBox', '').split()[2]}")
    if description:
        root.set("role", "img")
        root.set("aria-label", description)
    else:
        root.set("aria-hidden", "true")
    return ET.tostring(root, encoding="unicode")
