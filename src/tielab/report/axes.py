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
    if matching.get("by") not in (None, WIDTH):
        name += f" by {matching['by']}"
    return f"{name}, untied adjusted" if matching.get("adjusted") == "untied" else name


def axis_rank(axis: Any) -> tuple[int, str]:
    """Orders axes: equal width first, the unusual after the usual."""
    first = str(axis).split(",")[0].split()[0]
    return (AXES.index(first) if first in AXES else len(AXES), str(axis))


def placed(runs: list[CollectedRun]) -> list[Placed]:
    """Every run at each of its places, in the order given.

    A run whose size was solved has one place. One that was left as asked stands on every axis of its
    setting whose solved arms are compared with it, and at equal width if anything there needs that axis.
    """
    solved: dict[str, dict[str, str]] = {}
    for run in runs:
        if matching := _matching(run.record):
            axes = solved.setdefault(identity(setting_of(run.record)), {})
            axes[axis_name(matching)] = matching.get("adjusted", "tied")
    places = [(run, identity(setting_of(run.record))) for run in runs]
    joined = {id(run): list(_axes(run.record, solved.get(setting, {}))) for run, setting in places}
    equal_width = {setting for run, setting in places if not joined[id(run)]}
    found = []
    for run, setting in places:
        axes_of_run = joined[id(run)]
        if _matching(run.record) is None and setting in equal_width:
            axes_of_run = [WIDTH, *axes_of_run]
        found += [Placed(setting, axis, run) for axis in axes_of_run]
    return found


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
