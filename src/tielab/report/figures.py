"""Which figures a comparison has, and their files for a paper."""

from pathlib import Path

from tielab.errors import RequestError
from tielab.record import written_whole
from tielab.report.compare import Comparison
from tielab.report.plots.diagnostics import diagnostics_plots, measured
from tielab.report.plots.differences import cells_of, forest_plot, grid_plot
from tielab.report.plots.panel import Plot, figure_files
from tielab.report.plots.rates import rates_plot
from tielab.report.plots.style import ArmStyle, arm_styles
from tielab.report.plots.tradeoff import cost_plot, tradeoff_plot
from tielab.report.plots.training import loss_plot

KINDS = ("pdf", "svg")


def plots_of(comparison: Comparison) -> list[Plot]:
    """The figures there is data for, in the order of a page."""
    groups, styles = comparison.groups, styles_of(comparison)
    cells = cells_of(groups)
    plots = [
        loss_plot(groups, styles),
        tradeoff_plot(groups, styles),
        grid_plot(cells, styles),
        forest_plot(cells, styles),
        cost_plot(groups, styles),
        rates_plot(comparison.rate_curves, styles),
        *diagnostics_plots(measured(groups), styles),
    ]
    return [plot for plot in plots if plot is not None]


def styles_of(comparison: Comparison) -> dict[str, ArmStyle]:
    """The style of every arm that was run or tuned."""
    arms = [arm for group in comparison.groups for arm in group.arms if group.arms[arm]]
    return arm_styles([*arms, *(curve.arm for curve in comparison.rate_curves)])


def write_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write every figure as PDF and as SVG into the folder, which is made if missing.

    Raises:
        RequestError: there is nothing to draw, or the folder cannot be written to.
    """
    plots = plots_of(comparison)
    if not plots:
        raise RequestError(f"{folder}: no figure to write, no run gives numbers; the report's notes say why")
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for plot in plots:
            for kind, content in figure_files(plot, KINDS).items():
                paths.append(folder / f"{plot.name}.{kind}")
                with written_whole(paths[-1]) as file:
                    file.write(content)
    except OSError as error:
        raise RequestError(f"cannot write {folder}: {error.strerror}; name another folder") from None
    return paths
