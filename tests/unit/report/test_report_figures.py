import io
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from report_records import collected, make_record
from report_study import ARMS, study, write_metrics
from tielab.errors import RequestError
from tielab.record import METRICS_NAME, Record
from tielab.report.compare import Comparison, compare
from tielab.report.figures import plots_of, styles_of, write_figures
from tielab.report.groups import Group
from tielab.report.plots.diagnostics import Spread, measured
from tielab.report.plots.differences import cells_of, forest_plot, grid_plot
from tielab.report.plots.panel import MAX_PANELS, Panel, Plot, at_most, figure_files, hint, panel_svg
from tielab.report.plots.rates import rates_plot
from tielab.report.plots.style import GREY, arm_styles, log_ticks, number_text
from tielab.report.plots.tradeoff import Point, frontier, parameters, points_of, tradeoff_plot, train_flops
from tielab.report.plots.training import TRAIN, VALIDATION, band, loss_plot, metrics_of
from tielab.report.rates import RateCurve

STYLES = arm_styles(ARMS)
ALL = (
    "loss_against_tokens", "bits_per_byte_against_size", "difference_by_vocabulary_and_width",
    "paired_differences", "throughput_and_memory", "learning_rates", "diagnostic_1_path_gradients",
)  # fmt: skip


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return study(tmp_path_factory.mktemp("study"))


def drawn(panel: Panel) -> Axes:
    axes = Figure().subplots()
    panel.draw(axes)
    return axes


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def pairs(
    *differences: float, vocab_size: int = 512, embed_dim: int = 64, **changes: Any
) -> Iterator[Record]:
    """Runs of one setting whose tied arm is so much above the untied one, a seed each."""
    for seed, difference in enumerate(differences):
        for tied in (True, False):
            bits = 2.0 + (difference if tied else 0.0)
            sizes = {"vocab_size": vocab_size, "embed_dim": embed_dim}
            yield make_record(tied=tied, seed=seed, bits_per_byte=bits, **sizes, **changes)


def test_arms_differ_without_colour_and_with_it() -> None:
    styles = arm_styles(["tied", *(f"arm {i}" for i in range(20)), "untied"])
    assert styles["tied"] == arm_styles(["untied", "tied"])["tied"]
    assert len({style.colour for style in list(styles.values())[:6]}) == 6
    assert len({(style.marker, str(style.dashes)) for style in styles.values()}) > 12
    assert len({(s.colour, s.marker, str(s.dashes)) for s in styles.values()}) == 22


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.003, "0.003"), (1234, "1234"), (65_536, "65.5k"), (1.5e6, "1.5M"), (3e15, "3e15"),
        (-0.02, "-0.02"),
    ],
)  # fmt: skip
def test_ticks_are_short_numbers(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(("low", "high", "at_least"), [(1e3, 1e6, 4), (0.001, 0.004, 3), (2e10, 9e10, 3)])
def test_a_logarithmic_axis_has_ticks_however_short_it_is(low: float, high: float, at_least: int) -> None:
    axes = Figure().subplots()
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    log_ticks(axes.xaxis)
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert at_least <= len(ticks) <= 7


def table(tokens: list[int], losses: list[float], metric: str = TRAIN) -> pd.DataFrame:
    other = VALIDATION if metric == TRAIN else TRAIN
    return pd.DataFrame({"tokens": tokens, metric: losses, other: [np.nan] * len(tokens)})


def test_a_band_is_the_mean_and_the_range_of_the_seeds_by_hand() -> None:
    found = band([table([100, 200, 300], [5.0, 4.0, 3.0]), table([100, 200, 300], [6.0, 4.0, 1.0])], TRAIN)
    assert found is not None
    assert found.tokens.tolist() == [100, 200, 300]
    assert found.mean.tolist() == [5.5, 4.0, 2.0]
    assert (found.low.tolist(), found.high.tolist()) == ([5.0, 4.0, 1.0], [6.0, 4.0, 3.0])


def test_a_band_covers_what_all_seeds_have_and_meets_between_their_tokens() -> None:
    found = band(
        [table([100, 300], [5.0, 3.0], VALIDATION), table([200, 400], [1.0, 3.0], VALIDATION)], VALIDATION
    )
    assert found is not None
    assert found.tokens.tolist() == [200, 300]
    assert found.mean.tolist() == [(4.0 + 1.0) / 2, (3.0 + 2.0) / 2]


def test_training_loss_is_smoothed_and_thinned_and_validation_is_not() -> None:
    losses = [1.0, 3.0] * 500
    tokens = list(range(1, 1001))
    train, validation = (
        band([table(tokens, losses)], TRAIN),
        band([table(tokens[:5], losses[:5], VALIDATION)], VALIDATION),
    )
    assert train is not None
    assert validation is not None
    assert len(train.tokens) <= 200
    assert train.mean[-50:] == pytest.approx(2.0)
    assert validation.mean.tolist() == losses[:5]


@pytest.mark.parametrize("text", ["", "tokens\n", "a,b\n1,2\n", "\x00\xff", 'tokens,"'])
def test_metrics_that_cannot_be_read_are_none(tmp_path: Path, text: str) -> None:
    assert metrics_of(tmp_path) is None
    (tmp_path / METRICS_NAME).write_bytes(text.encode("latin-1"))
    assert metrics_of(tmp_path) is None


def test_a_word_among_the_metrics_is_no_number(tmp_path: Path) -> None:
    (tmp_path / METRICS_NAME).write_text("step,tokens,train/loss,val/loss\n1,10,<b>,\n2,20,4.5,\n")
    found = metrics_of(tmp_path)
    assert found is not None
    assert found["train/loss"].tolist() == pytest.approx([np.nan, 4.5], nan_ok=True)


def test_a_run_without_metrics_is_named(tmp_path: Path) -> None:
    runs = collected(*pairs(0.1))
    write_metrics(tmp_path / "with", runs.runs[0].record)
    moved = [
        type(run)(tmp_path / name, run.record)
        for run, name in zip(runs.runs, ("with", "without"), strict=True)
    ]
    plot = loss_plot(compare(runs._replace(runs=moved)).groups, STYLES)
    assert plot is not None
    assert f"Without a readable metrics.csv: {tmp_path / 'without'}." in plot.caption
    assert loss_plot(compare(collected(*pairs(0.1))).groups, STYLES) is None


def test_the_frontier_is_what_no_smaller_model_undercuts() -> None:
    points = [
        Point("tied", "", x, y, None) for x, y in ((1, 3.0), (2, 3.5), (3, 2.0), (3, 2.5), (4, 2.0), (5, 1.0))
    ]
    assert [(point.x, point.mean) for point in frontier(points)] == [(1, 3.0), (3, 2.0), (5, 1.0)]


def test_points_are_means_over_seeds_at_the_counted_size() -> None:
    records = list(pairs(0.1, 0.3, flops_per_token={"forward": 2, "train": 6}, tokens_seen=1000))
    groups = compare(collected(*records)).groups
    tied, untied = points_of(groups, parameters)
    assert (tied.arm, tied.x, tied.mean) == ("tied", records[0].parameters["total"], pytest.approx(2.2))
    assert tied.sd == pytest.approx(0.2 / 2**0.5)
    assert untied.x > tied.x
    assert {point.x for point in points_of(groups, train_flops)} == {6000}


def test_sizes_that_no_record_tells_have_no_panel() -> None:
    groups = compare(collected(*pairs(0.1, flops_per_token={}))).groups
    assert points_of(groups, train_flops) == []
    plot = tradeoff_plot(groups, STYLES)
    assert plot is not None
    assert [panel.title for panel in plot.panels] == ["Against parameters"]


def test_both_axes_make_a_heat_map_with_the_interval_in_every_cell() -> None:
    clear, unclear = (0.1, 0.11, 0.12), (0.1, -0.1, 0.05)
    records = [
        *pairs(*clear, embed_dim=64), *pairs(*unclear, embed_dim=128),
        *pairs(*clear, vocab_size=1024, embed_dim=64), *pairs(-0.2, vocab_size=1024, embed_dim=128),
    ]  # fmt: skip
    plot = grid_plot(cells_of(compare(collected(*records)).groups), STYLES)
    assert plot is not None
    (panel,) = plot.panels
    assert panel.title == "tied \N{MINUS SIGN} untied"
    axes = drawn(panel)
    assert texts(axes)[:2] == ["+0.1100", "+0.0852 to +0.1348"]
    assert texts(axes)[-2:] == ["-0.2000", "one seed"]
    squares = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert [patch.get_hatch() for patch in squares] == [None, "////", None, "////"]
    red, _, blue = to_rgb(squares[0].get_facecolor()[:3])
    assert red > blue, "above zero is the colour of the reference"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["512", "1024"]


def test_the_higher_number_is_the_darker_cell() -> None:
    records = [
        *pairs(0.1, 0.101, 0.102), *pairs(0.01, 0.0101, 0.0102, vocab_size=1024),
        *pairs(-0.1, -0.101, -0.102, embed_dim=128), *pairs(0.0, 0.0, vocab_size=1024, embed_dim=128),
    ]  # fmt: skip
    plot = grid_plot(cells_of(compare(collected(*records)).groups), STYLES)
    assert plot is not None
    faces = [np.array(patch.get_facecolor()[:3]) for patch in drawn(plot.panels[0]).patches]
    worse, better, little = faces[:3]
    assert worse.sum() < little.sum()
    assert better[2] > better[0]
    assert worse[0] > worse[2]


def test_other_settings_have_heat_maps_of_their_own() -> None:
    records = [
        record
        for size in (512, 1024)
        for dim in (64, 128)
        for record in pairs(0.1, 0.2, vocab_size=size, embed_dim=dim)
    ]
    others = [
        record
        for size in (512, 1024)
        for dim in (64, 128)
        for record in pairs(0.3, 0.4, vocab_size=size, embed_dim=dim)
    ]
    for record in others:
        record.config["budget"]["tokens"] = 77
    plot = grid_plot(cells_of(compare(collected(*records, *others)).groups), STYLES)
    assert plot is not None
    assert [panel.title for panel in plot.panels] == [
        "tied \N{MINUS SIGN} untied, budget.tokens 77", "tied \N{MINUS SIGN} untied, budget.tokens 1000000",
    ]  # fmt: skip


def test_one_axis_makes_a_line_and_none_makes_nothing() -> None:
    records = [*pairs(0.1, 0.11, 0.12), *pairs(0.1, -0.1, embed_dim=128)]
    plot = grid_plot(cells_of(compare(collected(*records)).groups), STYLES)
    assert plot is not None
    assert plot.name == "difference_by_width"
    axes = drawn(plot.panels[0])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["64", "128"]
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() for line in marks] == [STYLES["tied"].colour, "white"]
    assert grid_plot(cells_of(compare(collected(*pairs(0.1, 0.2))).groups), STYLES) is None


def test_the_forest_has_every_cell_its_interval_and_its_equivalence_band(comparison: Comparison) -> None:
    cells = cells_of(comparison.groups)
    plot = forest_plot(cells, STYLES)
    assert plot is not None
    assert len(cells) == 8
    assert [panel.title for panel in plot.panels] == list(dict.fromkeys(cell.contrast for cell in cells))
    axes = drawn(plot.panels[0])
    own = [cell.difference for cell in cells if cell.arm == "tied"]
    intervals = [
        line.get_xdata()
        for line in axes.lines
        if line.get_color() not in (GREY,) and len(line.get_xdata()) == 2
    ]
    for one in own:
        assert [one.low, one.high] in [list(interval) for interval in intervals]
    widths = [collection.get_paths()[0].get_extents().width for collection in axes.collections]
    assert widths == pytest.approx([2 * one.band for one in own])
    assert texts(axes) == [f"vocab_size {v}, embed_dim {d}" for v in (512, 2048) for d in (64, 128)]
    assert forest_plot([], STYLES) is None


def test_the_best_rate_is_ringed_and_its_basin_shaded(comparison: Comparison) -> None:
    plot = rates_plot(comparison.rate_curves, STYLES)
    assert plot is not None
    assert [panel.title for panel in plot.panels] == [
        "vocab_size 512, embed_dim 64",
        "vocab_size 2048, embed_dim 64",
    ]
    axes = drawn(plot.panels[0])
    rings = [
        line for line in axes.lines if line.get_markerfacecolor() == "none" and line.get_markersize() > 8
    ]
    assert [float(line.get_xdata()[0]) for line in rings] == [0.002] * 3
    first = comparison.rate_curves[0]
    assert axes.patches[0].get_extents().width >= 0
    assert axes.patches[0].get_x() == first.basin_low
    assert rates_plot([], STYLES) is None


def test_a_rate_that_diverged_is_a_cross_at_the_top_and_no_point_of_the_curve() -> None:
    points = {0.001: {"0": 2.1}, 0.002: {"0": 2.0}, 0.004: {"0": 2.2}, 0.008: {"0": math.inf}}
    curve = RateCurve({}, "tied", points, 0.002, True, 0.002, 0.002)
    none = RateCurve({}, "untied", {0.001: {"0": math.inf}}, 0.001, False, 0.001, 0.001)
    plot = rates_plot([curve, none], STYLES)
    assert plot is not None
    assert plot.caption.endswith("Crosses at the top: a run diverged at this rate.")
    axes = drawn(plot.panels[0])
    crosses = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "x"]
    assert crosses == [[0.008], [0.001]]
    curves = {tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) > 1}
    assert curves == {(0.001, 0.002, 0.004)}
    assert all(map(math.isfinite, axes.get_ylim()))
    assert panel_svg(plot.panels[0], "x", "x")


def test_diagnostics_of_any_name_are_averaged_over_seeds() -> None:
    found = [
        {
            "new": {
                "share": {"last": 1.0},
                "by_decile": [1, None, 3.0],
                "rows": [[1.0, 2.0]],
                "word": "x",
                "flag": True,
            }
        },
        {"new": {"share": {"last": 3.0}, "by_decile": [3, None, float("nan")], "empty": [], "none": None}},
    ]
    records = [make_record(seed=seed) for seed in (0, 1)]
    for record, one in zip(records, found, strict=True):
        vars(record)["diagnostics"] = one
    vars(records[1])["diagnostics"]["broken"] = "no numbers"
    got = measured(compare(collected(*records)).groups)
    assert got.scalars["new", "share.last", ""] == {"tied": Spread(2.0, 2**0.5, 2)}
    assert ("new", "word", "") not in got.scalars
    first, gap, _ = got.curves["new", "by_decile", ""]["tied"]
    assert (first.mean, gap.n) == (1.0, 0)
    assert [one.mean for one in got.curves["new", "rows[0]", ""]["tied"]] == [1.0, 2.0]


def test_a_list_with_gaps_averages_what_is_there() -> None:
    records = [make_record(seed=seed) for seed in (0, 1)]
    for record, values in zip(records, ([1.0, None], [3.0, 5.0]), strict=True):
        vars(record)["diagnostics"] = {"d": {"list": values}}
    first, second = measured(compare(collected(*records)).groups).curves["d", "list", ""]["tied"]
    assert (first.mean, first.n) == (2.0, 2)
    assert (second.mean, second.sd, second.n) == (5.0, None, 1)


def test_an_old_record_has_no_diagnostics() -> None:
    record = make_record()
    vars(record).pop("diagnostics", None)
    assert measured([Group({}, {"tied": {(0,): collected(record).runs[0]}})]).scalars == {}


def test_only_what_has_data_is_drawn(comparison: Comparison) -> None:
    assert tuple(plot.name for plot in plots_of(comparison)) == ALL
    assert plots_of(compare(collected(make_record(status="failed")))) == []
    bare = make_record(throughput=None, peak_memory_bytes=None, parameters={}, flops_per_token={})
    assert plots_of(compare(collected(bare))) == []


def test_every_arm_has_one_style_in_all_figures(comparison: Comparison) -> None:
    assert list(styles_of(comparison)) == list(ARMS)
    for plot in plots_of(comparison):
        assert plot.arms in ({}, STYLES)


def test_panels_beyond_the_limit_are_named() -> None:
    panels = [Panel(f"p{i}", lambda axes: None) for i in range(MAX_PANELS + 2)]
    kept, sentence = at_most(panels)
    assert (len(kept), sentence) == (
        MAX_PANELS,
        f" Not drawn, for want of room: p{MAX_PANELS}; p{MAX_PANELS + 1}.",
    )
    assert at_most(panels[:3]) == (panels[:3], "")


def hostile(axes: Axes) -> None:
    axes.axvspan(0.2, 0.4, hatch="//")
    (mark,) = axes.plot([0.5], [0.5], "o", clip_on=True)
    hint(mark, '"><script>alert(1)</script> $\\frac{1}{$')
    axes.set_xlabel('</svg><script>alert(2)</script> id="x" url(#y) $\\frac{1}{$')


def test_an_svg_in_a_page_has_ids_of_its_own_and_loads_nothing() -> None:
    panel = Panel("<b>&$title$", hostile)
    text = panel_svg(panel, "one", '"<i>')
    assert panel_svg(panel, "one", '"<i>') == text, "the same in every run"
    root = ET.fromstring(text)
    ids = [element.get("id", "") for element in root.iter() if "id" in element.attrib]
    assert len(set(ids)) == len(ids) > 5
    assert all(re.fullmatch(r"one-[\w.-]+", name) for name in ids)
    attributes = [value for element in root.iter() for value in element.attrib.values()]
    references = re.findall(r"url\(#(.*?)\)", " ".join(attributes))
    references += [v[1:] for e in root.iter() for k, v in e.attrib.items() if k.endswith("href")]
    assert references
    assert set(references) <= set(ids)
    assert not [
        element for element in root.iter() if element.tag.endswith(("script", "metadata", "image", "style"))
    ]
    assert not re.search("https?://", re.sub(r' xmlns(:\w+)?="[^"]*"', "", text))
    assert '</svg><script>alert(2)</script> id="x" url(#y) $\\frac{1}{$' in [e.text for e in root.iter()]
    assert '"><script>alert(1)</script> $\\frac{1}{$' in [
        e.text for e in root.iter() if e.tag.endswith("title")
    ]
    assert "<script" not in text
    assert root.get("aria-label") == '"<i>'


def test_files_are_whole_figures_and_the_same_every_time() -> None:
    plot = Plot("name", "Title", "", [Panel(str(i), hostile) for i in range(5)], STYLES)
    files = figure_files(plot, ("pdf", "svg"))
    assert files == figure_files(plot, ("pdf", "svg"))
    assert files["pdf"].startswith(b"%PDF")
    assert b"/FontFile2" in files["pdf"] or b"/TrueType" in files["pdf"] or b"/CIDFontType2" in files["pdf"]
    root = ET.parse(io.BytesIO(files["svg"])).getroot()
    shown = [element.text for element in root.iter() if element.text]
    assert {"0", "4", *ARMS} <= set(shown)


def test_figures_are_written_as_pdf_and_svg(comparison: Comparison, tmp_path: Path) -> None:
    paths = write_figures(comparison, tmp_path / "new" / "figures")
    assert sorted(path.name for path in (tmp_path / "new" / "figures").iterdir()) == sorted(
        f"{name}.{kind}" for name in ALL for kind in ("pdf", "svg")
    )
    assert all(path.stat().st_size > 2000 for path in paths)


def test_figures_that_cannot_be_written_are_refused_in_one_line(
    comparison: Comparison, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match=r"cannot write .*file: .*; name another folder"):
        write_figures(comparison, tmp_path / "file")
    with pytest.raises(RequestError, match="no figure to write"):
        write_figures(compare(collected(make_record(status="failed"))), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_report_without_figures_imports_no_library_for_them() -> None:
    code = (
        "import sys, tielab.cli, tielab.report.html, tielab.report.figures; "
        "print([m for m in ('torch', 'pandas', 'matplotlib', 'jinja2', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
