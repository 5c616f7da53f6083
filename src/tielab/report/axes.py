"""Which matching axes a run belongs to: equal width, or a size solved for equal parameters, FLOPs or time."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tielab.record import Record
from tielab.report.arms import TIED, UNTIED, arm_of
from tielab.report.collect import CollectedRun
from tielab.report.pairing import MEETING, TRAIN_FLOPS, are_apart, lookup, quantity
from tielab.report.settings import identity, setting_of

WIDTH = "width"
AXIS_COLUMN = "matching"
AXES = (WIDTH, "params", "flops", "time")


class Axis(NamedTuple):
    """What the arms have in common, and which arm's size or budget was solved for it and how."""

    kind: str = WIDTH
    adjusted: str = TIED
    by: str = WIDTH

    @property
    def name(self) -> str:
        """``params``, with what is not usual: ``params, untied adjusted``, ``params by depth``."""
        by = "" if self.by == WIDTH else f" by {self.by}"
        return f"{self.kind}{by}{', untied adjusted' if self.adjusted == UNTIED else ''}"

    @property
    def is_solved(self) -> bool:
        return self.kind != WIDTH

    @property
    def meets_parameters(self) -> bool:
        """Whether the arms have equally many parameters, as nearly as matching finds."""
        return self.kind in MEETING


EQUAL_WIDTH = Axis()


class Placed(NamedTuple):
    """A run at one of its places in the comparison."""

    setting: str
    axis: Axis
    run: CollectedRun


def axis_of(matching: dict[str, Any]) -> Axis:
    """The axis that a config asks for or that a record was matched on."""
    kind = str(matching.get("axis") or WIDTH)
    if kind == WIDTH:
        return EQUAL_WIDTH
    # For equal time the budget is solved, not a size.
    by = WIDTH if kind == "time" else matching.get("by") or WIDTH
    return Axis(kind, matching.get("adjusted") or TIED, by)


def asked_axis(record: Record) -> Axis:
    """The axis that the run's config asks for."""
    return axis_of(lookup(record, "config.matching") or {})


def axis_rank(axis: Any) -> tuple[int, str]:
    """Orders axes: equal width first, the unusual after the usual."""
    first = str(axis).split(",")[0].split()[0]
    return (AXES.index(first) if first in AXES else len(AXES), str(axis))


def placed(runs: list[CollectedRun]) -> list[Placed]:
    """Every run at each of its places, in the order given.

    A run whose size was solved has one place. One that was left as asked stands on every axis of its
    setting that it meets, and at equal width if there is something to compare there, or no other place.
    """
    settings: dict[str, list[CollectedRun]] = {}
    for run in runs:
        settings.setdefault(identity(setting_of(run.record)), []).append(run)
    return [place for setting, members in settings.items() for place in _placed(setting, members)]


def _placed(setting: str, runs: list[CollectedRun]) -> Iterator[Placed]:
    """The places of the runs of one setting."""
    solved: dict[Axis, list[CollectedRun]] = {}
    for run in runs:
        if not was_left_alone(run.record):
            solved.setdefault(axis_of(lookup(run.record, "matching")), []).append(run)
    alone = [run for run in runs if was_left_alone(run.record)]
    met = {id(run): [axis for axis in solved if _meets(run, axis, solved[axis])] for run in alone}
    at_width = len({arm_of(run) for run in alone}) > 1 or not all(met.values())
    for run in runs:
        if id(run) not in met:
            yield Placed(setting, axis_of(lookup(run.record, "matching")), run)
            continue
        if at_width:
            yield Placed(setting, EQUAL_WIDTH, run)
        for axis in met[id(run)]:
            yield Placed(setting, axis, run)


def was_left_alone(record: Record) -> bool:
    """Whether a run's size and budget are as asked."""
    return not lookup(record, "matching")


def _meets(run: CollectedRun, axis: Axis, solved: list[CollectedRun]) -> bool:
    """Whether a run that was left as asked has in common with the solved ones what the axis says.

    What it asked for says nothing: of jobs that compute the same, only the first is run.
    """
    is_plain, is_adjusted = arm_of(run) in (TIED, UNTIED), run.record.tied is (axis.adjusted == TIED)
    if is_plain and not is_adjusted:
        return True  # what the others were solved to meet
    if not axis.meets_parameters:
        return is_adjusted and asked_axis(run.record) == axis  # seconds are measured, not recorded here
    if is_adjusted and arm_of(run) in {arm_of(other) for other in solved}:
        return False
    return not any(
        are_apart(quantity(run.record, name), _target(name, solved)) for name in MEETING[axis.kind]
    )


TARGETS = {"parameters.total": "target_parameters", TRAIN_FLOPS: "target_train_flops"}
"""What a record of a solved run calls the quantities that it was to meet."""


def _target(name: str, solved: list[CollectedRun]) -> Any:
    """What the runs of an axis were solved to meet; None if no record says."""
    targets = [lookup(run.record, f"matching.{TARGETS[name]}") for run in solved]
    return next((target for target in targets if target is not None), None)
