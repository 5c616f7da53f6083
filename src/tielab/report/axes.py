"""Which matching axes a run belongs to: equal width, or a size solved for equal parameters, FLOPs or time."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tielab.record import Record
from tielab.report.collect import CollectedRun
from tielab.report.pairing import lookup
from tielab.report.settings import identity, setting_of

WIDTH = "width"
AXIS_COLUMN = "matching"
AXES = (WIDTH, "params", "flops", "time")


class Placed(NamedTuple):
    """A run at one of its places in the comparison."""

    setting: str
    axis: str
    run: CollectedRun


def axis_name(matching: dict[str, Any]) -> str:
    """``params``, with what is not usual: ``params, untied adjusted``, ``params by depth``."""
    name = str(matching.get("axis"))
    # For equal time the budget is solved, not a size.
    if matching.get("by") not in (None, WIDTH) and name != "time":
        name += f" by {matching['by']}"
    return f"{name}, untied adjusted" if matching.get("adjusted") == "untied" else name


def axis_rank(axis: Any) -> tuple[int, str]:
    """Orders axes: equal width first, the unusual after the usual."""
    first = str(axis).split(",")[0].split()[0]
    return (AXES.index(first) if first in AXES else len(AXES), str(axis))


def placed(runs: list[CollectedRun]) -> list[Placed]:
    """Every run at each of its places, in the order given.

    A run whose size was solved has one place. One that was left as asked stands on every axis of its
    setting whose solved arms are compared with it, and at equal width if there is something to compare
    there, or no other place.
    """
    settings: dict[str, list[CollectedRun]] = {}
    for run in runs:
        settings.setdefault(identity(setting_of(run.record)), []).append(run)
    return [place for setting, members in settings.items() for place in _placed(setting, members)]


def _placed(setting: str, runs: list[CollectedRun]) -> Iterator[Placed]:
    """The places of the runs of one setting."""
    solved = {
        axis_name(matching): matching.get("adjusted", "tied")
        for run in runs
        if (matching := _matching(run.record))
    }
    axes = [list(_axes(run.record, solved)) for run in runs]
    sides = {run.record.tied for run in runs if not _matching(run.record)}
    at_width = len(sides) > 1 or not all(axes)
    for run, found in zip(runs, axes, strict=True):
        if at_width and not _matching(run.record):
            yield Placed(setting, WIDTH, run)
        for axis in found:
            yield Placed(setting, axis, run)


def _matching(record: Record) -> dict[str, Any] | None:
    return lookup(record, "matching") or None


def _axes(record: Record, solved: dict[str, str]) -> Iterator[str]:
    """The axes apart from equal width: its own of a solved run; of another those where it may stand."""
    if matching := _matching(record):
        yield axis_name(matching)
        return
    asked = axis_name(lookup(record, "config.matching") or {})
    for axis, adjusted in solved.items():
        # On an axis where all tied arms are solved for, a tied one of the asked width has no place,
        # unless it was asked to be matched and needed no other size.
        if record.tied is not (adjusted == "tied") or asked == axis:
            yield axis
